package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/sshserver"
)

// sshFlags are the flags of an SSH endpoint.
type sshFlags struct {
	port   int
	keys   []string
	config string
}

func (f *sshFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.port, "ssh-port", 0, "`port` of the SSH endpoint on 127.0.0.1 (default: the same free port each time)")
	fl.StringArrayVar(&f.keys, "ssh-key", nil, "let clients with a public key in this `file` connect; may be repeated (default: ~/.ssh/*.pub and the agent's keys)")
	fl.StringVar(&f.config, "ssh-config", "", "write the client's configuration to this `file` instead of printing it")
}

// sshEndpoint is an SSH endpoint of one sandbox.
type sshEndpoint struct {
	*app
	flags   *sshFlags
	sandbox sshserver.Sandbox
	name    string // the alias that clients use contains it
	user    string
	id      string // names the endpoint's files in the state directory
}

// sshView describes an endpoint that listens.
type sshView struct {
	Host    string `json:"host"`
	Port    int    `json:"port"`
	User    string `json:"user"`
	Alias   string `json:"alias"`
	HostKey string `json:"host_key"`
	Config  string `json:"config"`
	File    string `json:"config_file,omitempty"`
}

// sshUser matches the user names that OpenSSH's configuration can have without quotes. The name may
// come from the sandbox.
var sshUser = pattern.New(`^[a-z_][a-z0-9_-]{0,31}$`)

// open listens. The endpoint exists until serve's context ends.
func (e *sshEndpoint) open() (view sshView, serve func(context.Context) error, err error) {
	keys, err := e.clientKeys(e.flags.keys)
	if err != nil {
		return view, nil, err
	}
	hostKey, err := e.hostKey()
	if err != nil {
		return view, nil, fail("use the key of the SSH endpoint", err)
	}
	if !sshUser.MatchString(e.user) {
		e.user = "dev"
	}
	server, err := sshserver.New(sshserver.Config{
		Sandbox: e.sandbox, HostKey: hostKey, User: e.user, Keys: keys.public, Note: e.note,
	})
	if err != nil {
		return view, nil, err
	}
	listener, err := e.listen()
	if err != nil {
		return view, nil, err
	}
	view, err = e.describe(listener, hostKey.PublicKey(), keys.identities)
	if err != nil {
		return view, nil, errors.Join(err, listener.Close())
	}
	return view, func(ctx context.Context) error { return server.Serve(ctx, listener) }, nil
}

// describe writes the files that clients need.
func (e *sshEndpoint) describe(listener net.Listener, key ssh.PublicKey, identities []string) (sshView, error) {
	known, err := e.file(".known_hosts")
	if err != nil {
		return sshView{}, err
	}
	h := sshHost{alias: sshAlias(e.name), port: portOf(listener), user: e.user, knownHosts: known, identities: identities}
	block, err := h.block()
	if err != nil {
		return sshView{}, err
	}
	if err := h.writeKnownHosts(key); err != nil {
		return sshView{}, fail("write "+known, err)
	}
	view := sshView{
		Host: "127.0.0.1", Port: h.port, User: h.user, Alias: h.alias, Config: block, File: e.flags.config,
		HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
	}
	if e.flags.config != "" {
		if err := writeSSHConfig(e.flags.config, block); err != nil {
			return sshView{}, fail("write the configuration for SSH clients", err)
		}
	}
	return view, nil
}

// sshAlias returns the name by which clients call an endpoint.
func sshAlias(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	return "crannog-" + clean[:min(len(clean), 63)]
}

func portOf(l net.Listener) int {
	if address, ok := l.Addr().(*net.TCPAddr); ok {
		return address.Port
	}
	return 0
}

func (e *sshEndpoint) hostKey() (ssh.Signer, error) {
	dir, err := e.dir()
	if err != nil {
		return nil, err
	}
	return sshserver.HostKey(filepath.Join(dir, "host_key"))
}

// dir returns the directory for SSH endpoints in the state directory.
func (e *sshEndpoint) dir() (string, error) {
	dir, err := filepath.Abs(filepath.Join(e.app.config.State, "ssh"))
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o700)
}

func (e *sshEndpoint) file(suffix string) (string, error) {
	dir, err := e.dir()
	return filepath.Join(dir, e.id+suffix), err
}

// listen listens on the loopback interface: at the requested port, else at the one of the last time
// if it is free, so that the configuration of clients stays valid.
func (e *sshEndpoint) listen() (net.Listener, error) {
	if e.flags.port != 0 {
		l, err := listenLoopback(e.flags.port)
		if err != nil {
			return nil, fail("listen for SSH clients", err).hint("without --ssh-port, a free port is used")
		}
		return l, nil
	}
	file, err := e.file(".port")
	if err != nil {
		return nil, err
	}
	if data, err := readFile(file, 16); err == nil {
		if port, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && port > 0 && port < 1<<16 {
			if l, err := listenLoopback(port); err == nil {
				return l, nil
			}
		}
	}
	l, err := listenLoopback(0)
	if err != nil {
		return nil, fail("listen for SSH clients", err)
	}
	if err := durable.Replace(file, []byte(strconv.Itoa(portOf(l))+"\n"), durable.Options{Draft: ".port.*.new"}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listenLoopback listens where only programs of this machine can connect.
func listenLoopback(port int) (net.Listener, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault.Newf(fault.Exists, "port_in_use", "port %d of this machine is in use", port)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
