package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Addresses of the internet that exists only for a drill. They are public addresses, because the
// gateway treats others specially; no packet leaves the namespaces.
const (
	hostAddress     = "44.255.255.1"
	nameServer      = "44.255.255.2"
	internetAddress = "44.255.254.1"
	intranetAddress = "10.99.0.1"
	metadataAddress = "169.254.169.254"
	loopbackService = "127.0.0.1:80"
)

// hosts has the addresses of names below drill.test that differ from internetAddress.
var hosts = map[string]string{
	"intranet": intranetAddress, "metadata": metadataAddress, "loopback": "127.0.0.1", "machine": hostAddress,
}

// maxReceived bounds what the servers store.
const maxReceived = 64 << 20

// internet is the servers that attacks try to reach, in a network namespace of their own.
type internet struct {
	mu       sync.Mutex
	received bytes.Buffer
	closers  []io.Closer
}

// newInternet connects the network namespace of this process to a new one with the servers. files
// is a directory for the resolver's settings. The process must have been started by Start, so that
// nothing of the host changes.
func newInternet(ctx context.Context, files string) (*internet, error) {
	if err := Separate(); err != nil {
		return nil, err
	}
	if err := useResolver(files); err != nil {
		return nil, err
	}
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	n := &internet{}
	if err := onEndingThread(func() error { return n.start(ctx, int(own.Fd())) }); err != nil {
		return nil, errors.Join(fmt.Errorf("create the drill's network: %w", err), n.Close())
	}
	err = configure("drill0", hostAddress)
	if err == nil {
		err = route(&netlink.Route{Gw: net.ParseIP(nameServer)})
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	// A service that only programs of the host may reach.
	return n, errors.Join(n.serveHTTP(ctx, loopbackService))
}

// onEndingThread calls work on a thread that ends with it. The namespace that work enters then lasts
// as long as the sockets in it. The main thread cannot end: the process would stay in that namespace
// for all that look at it from outside.
func onEndingThread(work func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- work()
			return
		}
		// While this goroutine keeps the main thread, another one gets another thread.
		err := onEndingThread(work)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// useResolver makes the names of the drill resolve for this process and its children.
func useResolver(files string) error {
	for name, text := range map[string]string{"resolv.conf": "nameserver " + nameServer + "\n", "hosts": "127.0.0.1 localhost\n"} {
		from := filepath.Join(files, name)
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil { //nolint:gosec // every user reads these
			return err
		}
		if err := unix.Mount(from, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("replace /etc/%s for the drill: %w", name, err)
		}
	}
	return nil
}

func configure(name string, addresses ...string) error {
	for _, device := range []string{"lo", name} {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("start %s: %w", device, err)
		}
		for _, a := range addresses {
			if device == "lo" {
				continue
			}
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(30, 32)}}); err != nil {
				return fmt.Errorf("set the address of %s: %w", device, err)
			}
		}
	}
	return nil
}

func route(r *netlink.Route) error {
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("add a route: %w", err)
	}
	return nil
}

// start makes the namespace and opens the servers in it.
func (n *internet) start(ctx context.Context, peer int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "drill1"}, PeerName: "drill0", PeerNamespace: netlink.NsFd(peer)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("create a pair of interfaces: %w", err)
	}
	if err := configure("drill1", nameServer); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range []string{internetAddress, intranetAddress, metadataAddress} {
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(32, 32)}}); err != nil {
			return fmt.Errorf("add an address: %w", err)
		}
	}
	for _, port := range []string{":80", ":8080"} {
		if err := n.serveHTTP(ctx, "0.0.0.0"+port); err != nil {
			return err
		}
	}
	return errors.Join(n.serveStream(ctx), n.servePackets(ctx, ":9999", nil), n.servePackets(ctx, ":53", answerName))
}

func (n *internet) store(data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.received.Len() < maxReceived {
		n.received.Write(data)
		n.received.WriteByte('\n')
	}
}

// got reports whether a server received the token, in any case of letters and with anything between
// labels of a name.
func (n *internet) got(token string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Contains(n.received.Bytes(), []byte(token))
}

func (n *internet) keep(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closers = append(n.closers, c)
}

// Close ends the servers. The namespace and its interfaces end with them.
func (n *internet) Close() (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.closers {
		err = errors.Join(err, c.Close())
	}
	n.closers = nil
	return err
}

func (n *internet) serveHTTP(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	n.keep(l)
	server := &http.Server{Handler: http.HandlerFunc(n.answer)} //nolint:gosec // clients are the drill's own
	go server.Serve(l)                                          //nolint:errcheck // it ends when the listener is closed
	return nil
}

// answer stores a request. /redirect?to=URL redirects, as an allowed host may do for an attacker.
func (n *internet) answer(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s%s\n", r.Method, r.Host, r.RequestURI)
	_ = r.Header.Write(&b)
	_, _ = io.Copy(&b, io.LimitReader(r.Body, 1<<20))
	if to := r.URL.Query().Get("to"); r.URL.Path == "/redirect" && to != "" {
		// The target contains the token, and only a request for it counts.
		http.Redirect(w, r, to, http.StatusFound)
		return
	}
	n.store(b.Bytes())
	_, _ = io.WriteString(w, "ok\n")
}

func (n *internet) serveStream(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", ":9999")
	if err != nil {
		return err
	}
	n.keep(l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				data, _ := io.ReadAll(io.LimitReader(c, 1<<16))
				n.store(data)
			}()
		}
	}()
	return nil
}

func (n *internet) servePackets(ctx context.Context, address string, reply func([]byte) []byte) error {
	c, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", address)
	if err != nil {
		return err
	}
	n.keep(c)
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			size, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			n.store(buffer[:size])
			if reply != nil {
				_, _ = c.WriteTo(reply(buffer[:size]), from)
			}
		}
	}()
	return nil
}

// answerName answers a query for a name below drill.test.
func answerName(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	first, below := strings.CutSuffix(strings.ToLower(q.Name.String()), ".drill.test.")
	switch {
	case !below:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		address := internetAddress
		if a := hosts[first]; a != "" {
			address = a
		}
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(address).To4())},
		}}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}
