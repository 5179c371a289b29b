package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/proxy"
	"github.com/crannog/crannog/internal/fault"
)

// Environment is the resolver, network and roots that the process uses. The zero value means those
// of the host. No flag and no variable can change it, but a test can, in a role of its own binary.
type Environment struct {
	Resolver names.Resolver
	// Dial opens connections to addresses that passed every check.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots verify upstream servers.
	Roots *x509.CertPool

	about  *hello        // how the process names itself
	bodies *os.File      // directory for large bodies
	own    *ownAddresses // the host's own addresses, which no sandbox may reach
	// packages is the package cache of all sandboxes.
	packages *packageCache
}

// prepare reads the data that the process cannot read once it is confined.
func (w *Environment) prepare() error {
	if w.Roots == nil {
		// Without this check, custom roots that cannot be read would silently be replaced by the
		// host's.
		if path := os.Getenv("SSL_CERT_FILE"); path != "" {
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrPermission) {
				return fault.Wrap(err, fault.Unavailable, "roots_unreadable", "the certificate roots of SSL_CERT_FILE cannot be read by the process that uses them").
					WithHint("make them readable for all users, including the directories above")
			}
			f.Close()
		}
		roots, err := certs.Roots(nil)
		if err != nil {
			return err
		}
		w.Roots = roots
	}
	if w.about == nil {
		build, err := buildOf(self)
		if err != nil {
			return err
		}
		w.about = &hello{Oldest: oldest, Version: version, Build: build}
	}
	w.own = &ownAddresses{}
	_, err := w.own.now()
	return err
}

// newHandler creates the handler of one sandbox's packets, which decides its requests.
func (w *Environment) newHandler(c proxy.Config) (packetHandler, error) {
	own, err := w.own.now()
	if err != nil {
		return nil, err
	}
	c.Roots = w.Roots
	c.Dialer = &names.Dialer{Resolver: w.Resolver, DialAddress: w.dial, Own: own}
	c.SpoolFile = w.bodyFile
	return proxy.New(c)
}

// dial checks the host's own addresses again, because it may have got further ones after the
// sandbox was attached.
func (w *Environment) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	own, err := w.own.now()
	if err != nil {
		return nil, err
	}
	if err := names.CheckAddress(to.Addr(), everything(), own); err != nil {
		return nil, err
	}
	if w.Dial != nil {
		return w.Dial(ctx, network, address)
	}
	var plain net.Dialer
	return plain.DialContext(ctx, network, address)
}

// everything returns prefixes that contain all addresses.
func everything() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// freshness is the maximum age of the list of own addresses.
const freshness = time.Second

// ownAddresses caches the addresses of the host's interfaces.
type ownAddresses struct {
	mu   sync.Mutex
	list []netip.Addr
	read time.Time
}

func (o *ownAddresses) now() ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.read.IsZero() && time.Since(o.read) < freshness {
		return o.list, nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("own addresses: %w", err)
	}
	var list []netip.Addr
	for _, f := range found {
		prefix, err := netip.ParsePrefix(f.String())
		if err != nil {
			return nil, fmt.Errorf("own addresses: %w", err)
		}
		list = append(list, prefix.Addr())
	}
	o.list, o.read = slices.Clip(list), time.Now()
	return o.list, nil
}

// bodyFile creates an unnamed file, which disappears with its descriptor.
func (w *Environment) bodyFile() (*os.File, error) {
	if w.bodies == nil {
		return nil, errors.New("there is no directory for bodies")
	}
	raw, err := w.bodies.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	controlErr := raw.Control(func(dir uintptr) {
		fd, err = unix.Openat(int(dir), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, fmt.Errorf("create a file for a body: %w", err)
	}
	return os.NewFile(uintptr(fd), "body"), nil
}
