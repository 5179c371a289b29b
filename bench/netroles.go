package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Names of the roles in which this program starts itself.
const (
	clientArg0  = "bench-net-client"
	connectArg0 = "bench-net-connect"
	passArg0    = "bench-net-pass"
	kernelArg0  = "bench-net-kernel"
)

// netRoles are the roles of this program. They precede the standard ones, so that they replace the
// gateway of a state directory with a netEnvironment.
func netRoles() []reexec.Role {
	return []reexec.Role{
		{Match: reexec.Arg0(gateway.Arg0), Run: serveGateway},
		{Match: reexec.Arg0(clientArg0), Run: netClient},
		{Match: reexec.Arg0(connectArg0), Run: serveConnect},
		{Match: reexec.Arg0(passArg0), Run: servePass},
		{Match: reexec.Arg0(kernelArg0), Run: runKernelPeer},
	}
}

// netEnvironment is the network outside of a gateway: one server, to which every name resolves. It
// is stored in a file of the state directory that only this program's role reads.
type netEnvironment struct {
	Upstream string
	Roots    []byte // PEM
}

const (
	netEnvironmentFile = "environment.json"
	// everyName is the address of all names. It must be public to pass the gateway's checks, but
	// nothing is sent to it.
	everyName = "93.184.216.34"
)

// write stores the environment in a state directory.
func (w netEnvironment) write(state string) error {
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, netEnvironmentFile), data, 0o600)
}

// LookupNetIP implements names.Resolver.
func (netEnvironment) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(everyName)}, nil
}

var _ names.Resolver = netEnvironment{}

// serveGateway runs the gateway with the netEnvironment of its state directory.
func serveGateway() {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[1]), netEnvironmentFile))
	if errors.Is(err, fs.ErrNotExist) {
		gateway.Serve(gateway.Environment{})
	}
	var w netEnvironment
	if err == nil {
		err = json.Unmarshal(data, &w)
	}
	if err != nil {
		fail(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.Roots)
	gateway.Serve(gateway.Environment{Resolver: w, Roots: roots, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, w.Upstream)
	}})
}

// fail prints an error and ends the process.
func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// waitForInputEnd ends this process when the process that started it has ended.
func waitForInputEnd() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// serveConnect runs a minimal proxy, which accepts CONNECT and copies, without policy, approvals or
// log. Its argument is the destination of every connection, and its first line of output its own
// address.
func serveConnect() {
	go waitForInputEnd()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer c.Close()
			in := bufio.NewReader(c)
			if r, err := http.ReadRequest(in); err != nil || r.Method != http.MethodConnect || in.Buffered() > 0 {
				return
			}
			up, err := new(net.Dialer).DialContext(context.Background(), "tcp", os.Args[1])
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
				join(c, up)
			}
			up.Close()
		}()
	}
}

// join copies in both directions until both have ended.
func join(a, b net.Conn) {
	back := make(chan struct{})
	copyOne := func(to, from net.Conn) {
		// On loopback, the kernel copies the bytes if it can.
		if _, tcp := from.(*net.TCPConn); tcp {
			_, _ = io.CopyBuffer(to, from, make([]byte, 256<<10))
		} else {
			_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 256<<10))
		}
		if h, ok := to.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}
	go func() { defer close(back); copyOne(a, b) }()
	copyOne(b, a)
	<-back
}

// servePass serves the gateway's end of an attachment and passes everything on. Its argument is the
// destination of every connection, and descriptor 3 is the attachment.
func servePass() {
	go waitForInputEnd()
	table := names.NewTable()
	l, err := attachment.Open(attachment.Packets, os.NewFile(3, "link"), &passHandler{to: os.Args[1], names: table}, attachment.Options{})
	if err != nil {
		fail(err)
	}
	fmt.Println("open")
	<-l.Done()
}

// passHandler passes all connections on and answers all names.
type passHandler struct {
	to    string
	names *names.Table
}

var _ attachment.Handler = (*passHandler)(nil)

func (p *passHandler) TCP(f *attachment.Flow) {
	up, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	in, err := f.Accept()
	if err != nil {
		return
	}
	defer in.Close()
	join(in, up)
}

func (p *passHandler) Names(query []byte, limit int) []byte {
	reply, _, err := names.Answer(query, limit, func(name string) (netip.Addr, bool) {
		a, err := p.names.Address(name)
		return a, err == nil
	})
	if err != nil {
		return nil
	}
	return reply
}

func (p *passHandler) Dropped(string, netip.AddrPort) {}

// gatewayResolver returns a resolver that uses the gateway's name server, regardless of the
// resolver's files.
func gatewayResolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(egress.Gateway, 53).String())
	}}
}
