package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sshserver"
)

// maxPublicKey bounds a file with public keys.
const maxPublicKey = 256 << 10

// clientKeys are public keys, of which a client must have one, and the files of their private keys.
type clientKeys struct {
	public     []ssh.PublicKey
	identities []string
}

// clientKeys reads the public keys in files, or without files those of the user: ~/.ssh/*.pub and
// the agent's.
func (a *app) clientKeys(files []string) (keys clientKeys, err error) {
	for _, file := range files {
		if err := keys.read(file); err != nil {
			return keys, fail("read the public keys in "+inert(file), err)
		}
	}
	if len(files) > 0 {
		return keys, nil
	}
	if home := a.variable("HOME"); home != "" {
		found, err := filepath.Glob(filepath.Join(home, ".ssh", "*.pub"))
		if err != nil {
			return keys, err // only for a home with brackets in its name
		}
		for _, file := range found {
			if err := keys.read(file); err != nil {
				a.note("no key was read from %s: %v", inert(file), err)
			}
		}
	}
	if socket := a.variable("SSH_AUTH_SOCK"); socket != "" {
		offered, err := agentKeys(socket)
		if err != nil {
			a.note("no key was read from the SSH agent: %v", err)
		}
		keys.public = append(keys.public, offered...)
	}
	if len(keys.public) == 0 {
		return keys, fail("find a public key of yours", fault.New(fault.NotFound, "ssh_no_key", "there is none in ~/.ssh/*.pub and none in an SSH agent")).
			hint("create one with ssh-keygen -t ed25519, or name a file with --ssh-key FILE")
	}
	return keys, nil
}

// read adds the keys of a file.
func (k *clientKeys) read(file string) error {
	data, err := readFile(file, maxPublicKey)
	if err != nil {
		return err
	}
	public, err := sshserver.PublicKeys(bytes.NewReader(data))
	if err != nil {
		return err
	}
	k.public = append(k.public, public...)
	private, isPublic := strings.CutSuffix(file, ".pub")
	if !isPublic {
		return nil
	}
	full, err := filepath.Abs(private)
	if err != nil {
		return err
	}
	if _, err := os.Stat(full); err == nil {
		k.identities = append(k.identities, full)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// agentTime bounds a request to an SSH agent.
const agentTime = 5 * time.Second

// agentKeys lists the keys of an agent. Certificates are omitted, because nothing checks them.
func agentKeys(socket string) (keys []ssh.PublicKey, err error) {
	conn, err := (&net.Dialer{Timeout: agentTime}).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(agentTime)); err != nil {
		return nil, err
	}
	list, err := agent.NewClient(conn).List()
	if err != nil {
		return nil, err
	}
	for _, k := range list {
		key, err := ssh.ParsePublicKey(k.Blob)
		if err != nil {
			return nil, fmt.Errorf("a key of the agent: %w", err)
		}
		if _, certificate := key.(*ssh.Certificate); !certificate {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
