package attempts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Serve starts what the attempts connect to, in the network and mount namespaces of the control:
// services at their paths, metadata services and resolvers at their addresses. The host does not
// see any of it.
func Serve(t *Target) (end func(), err error) {
	var open []io.Closer
	end = func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	listen := func(network, address string, serve func(net.Listener)) {
		l, listenErr := (&net.ListenConfig{Control: freeBind}).Listen(context.Background(), network, address)
		if listenErr != nil {
			err = errors.Join(err, listenErr)
			return
		}
		open = append(open, l)
		go serve(l)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return end, err
	}
	if err := errors.Join(addresses(), hosts(), ownRun(t.Secrets["/run"])); err != nil {
		return end, err
	}
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "169.254.170.2", "100.100.100.200"} {
		listen("tcp", address+":80", serveHTTP)
	}
	listen("tcp", "[fd00:ec2::254]:80", serveHTTP)
	listen("tcp", "127.0.0.1:2375", serveHTTP)
	listen("tcp", "8.8.8.8:853", serveHTTP)
	listen("tcp", fmt.Sprintf(":%d", t.Port), serveHTTP)
	listen("tcp", "8.8.8.8:53", func(l net.Listener) { eachConn(l, answerStream) })
	listen("unix", t.Abstract, func(l net.Listener) { PassSecret(l, t.secret()) })
	for _, path := range serviceSockets {
		if strings.HasPrefix(path, "/var/run/") {
			continue // a link to /run
		}
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755))
		listen("unix", path, func(l net.Listener) { eachConn(l, func(c net.Conn) { _ = c.Close() }) })
	}
	for _, port := range []int{53, 5353} {
		packets, listenErr := net.ListenPacket("udp", fmt.Sprintf("8.8.8.8:%d", port))
		if err = errors.Join(err, listenErr); listenErr == nil {
			open = append(open, packets)
			go answerPackets(packets)
		}
	}
	return end, err
}

// freeBind lets a socket listen at an address that the kernel is still adding.
func freeBind(network, _ string, conn syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	controlErr := conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) })
	return errors.Join(err, controlErr)
}

// ownRun mounts an empty /run with a copy of the secret, for the services' sockets.
func ownRun(secret string) error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "size=1m"); err != nil || secret == "" {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(secret), 0o755), os.WriteFile(secret, []byte(SecretText), 0o644))
}

// hosts resolves names to addresses of the control.
func hosts() error {
	path := filepath.Join(os.TempDir(), "escape-hosts")
	text := "127.0.0.1 localhost\n169.254.169.254 metadata.google.internal\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	defer os.Remove(path)
	return unix.Mount(path, "/etc/hosts", "", unix.MS_BIND, "")
}

// addresses adds the addresses that attempts connect to to the loopback device.
func addresses() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for i, address := range [][]byte{{127, 0, 0, 1}, {169, 254, 169, 254}, {169, 254, 170, 2}, {100, 100, 100, 200}, {8, 8, 8, 8}} {
		name := "lo"
		if i > 0 {
			name += ":" + itoa(i)
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := req.SetInet4Addr(address); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, req); err != nil {
			return fmt.Errorf("address %d: %w", i, err)
		}
	}
	if err := deviceUp(nil); err != nil {
		return err
	}
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(six)
	request := struct {
		address [16]byte
		prefix  uint32
		index   int32
	}{prefix: 128, index: 1}
	copy(request.address[:], net.ParseIP("fd00:ec2::254").To16())
	return errnoOf(unix.Syscall(unix.SYS_IOCTL, uintptr(six), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&request))))
}

func serveHTTP(l net.Listener) {
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, SecretText) })) //nolint:gosec // in a test, until the listener is closed
}

func eachConn(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go serve(conn)
	}
}

// PassSecret passes a descriptor of a file to each client of a socket, until the listener is
// closed.
func PassSecret(l net.Listener, path string) {
	eachConn(l, func(conn net.Conn) {
		defer conn.Close()
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		if unixConn, ok := conn.(*net.UnixConn); ok {
			_, _, _ = unixConn.WriteMsgUnix([]byte(SecretText), unix.UnixRights(int(f.Fd())), nil) // a client without a descriptor reports that
		}
	})
}

// dnsAnswer returns the answer of a resolver that resolves every name to 127.0.0.1.
func dnsAnswer(query []byte) []byte {
	answer := slices.Clone(query)
	answer[2], answer[3], answer[7] = 0x81, 0x80, 1
	return append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
}

func answerPackets(packets net.PacketConn) {
	for query := make([]byte, 512); ; {
		n, from, err := packets.ReadFrom(query)
		if err != nil {
			return
		}
		_, _ = packets.WriteTo(dnsAnswer(query[:n]), from)
	}
}

func answerStream(conn net.Conn) {
	defer conn.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	query := make([]byte, int(head[0])<<8|int(head[1]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	answer := dnsAnswer(query)
	_, _ = conn.Write(append([]byte{0, byte(len(answer))}, answer...))
}
