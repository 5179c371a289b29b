package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/host/text"
)

// sshHost is one endpoint as OpenSSH's configuration describes it.
type sshHost struct {
	alias      string
	port       int
	user       string
	knownHosts string   // the file with the endpoint's key
	identities []string // files of private keys
}

// sshConfigMark is the first line of a configuration that crannog wrote.
const sshConfigMark = "# Written by crannog. The endpoint exists while its command runs."

// block returns the configuration for ~/.ssh/config or a file of its own. The host key is known
// from the file, so that no client asks about it, and nothing of the user's machine is offered to
// the sandbox.
func (h sshHost) block() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nHost %s\n  HostName 127.0.0.1\n  Port %d\n  User %s\n", sshConfigMark, h.alias, h.port, h.user)
	for _, file := range h.identities {
		quoted, err := sshQuoted(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "  IdentityFile %s\n", quoted)
	}
	known, err := sshQuoted(h.knownHosts)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "  HostKeyAlias %s\n  UserKnownHostsFile %s\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  ForwardAgent no\n  ForwardX11 no\n", h.alias, known)
	return b.String(), nil
}

// sshQuoted returns a path as a value of OpenSSH's configuration. A quote or a line break could not
// be written there, and would begin another setting.
func sshQuoted(path string) (string, error) {
	if strings.ContainsAny(path, "\"\\\n\r\x00") || !text.Printable(path) {
		return "", fault.Newf(fault.Invalid, "ssh_path", "the path %q cannot be written in a configuration of OpenSSH", path)
	}
	return `"` + strings.ReplaceAll(path, "%", "%%") + `"`, nil
}

// writeKnownHosts writes the file by which clients recognise the endpoint.
func (h sshHost) writeKnownHosts(key ssh.PublicKey) error {
	line := h.alias + " " + string(ssh.MarshalAuthorizedKey(key))
	return durable.Replace(h.knownHosts, []byte(line), durable.Options{Draft: ".known_hosts.*.new"})
}

// writeSSHConfig writes the configuration to a file. A file that crannog did not write stays as it
// is: it may be the user's own configuration.
func writeSSHConfig(file, block string) error {
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fault.Newf(fault.Exists, "ssh_config_exists", "%s is not a regular file", file)
	default:
		data, err := readFile(file, maxSSHConfig)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(data, []byte(sshConfigMark)) {
			return fault.Newf(fault.Exists, "ssh_config_exists", "%s exists, and crannog did not write it", file).
				WithHint("name a file of its own, and add to ~/.ssh/config: Include FILE")
		}
	}
	return durable.Replace(file, []byte(block), durable.Options{Draft: ".crannog.*.new", Mode: 0o600})
}

// maxSSHConfig bounds an earlier configuration.
const maxSSHConfig = 64 << 10
