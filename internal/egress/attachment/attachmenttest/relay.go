package attachmenttest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a socket that carries Ethernet frames.
func Pair(t testing.TB, form Form) (peer, link *os.File) {
	t.Helper()
	peer, link, err := Sockets(form)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close(); link.Close() })
	return peer, link
}

// Sockets is Pair without a test.
func Sockets(form Form) (peer, link *os.File, err error) {
	kind := map[Form]int{Datagrams: unix.SOCK_DGRAM, Messages: unix.SOCK_SEQPACKET, Stream: unix.SOCK_STREAM}[form]
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "peer"), os.NewFile(uintptr(fds[1]), "link"), nil
}

// Relay joins a TAP device to a socket and returns the socket's other end. It ends with
// the test or with the device.
func Relay(t testing.TB, form Form, device *os.File) (link *os.File) {
	t.Helper()
	peer, link := Pair(t, form)
	stop, err := Join(form, device, peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return link
}

// Join joins a TAP device to the peer's end of a socket, like QEMU's -netdev dgram and stream. It
// takes ownership of both. stop ends it.
func Join(form Form, device, peer *os.File) (stop func(), err error) {
	conn, err := net.FileConn(peer)
	if err := errors.Join(err, peer.Close()); err != nil {
		return nil, err
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer conn.Close()
		buffer := make([]byte, 4+1<<17)
		for {
			n, err := device.Read(buffer[4:])
			if err != nil {
				return
			}
			frame := buffer[4 : 4+n]
			if form == Stream {
				binary.BigEndian.PutUint32(buffer, uint32(n))
				frame = buffer[:4+n]
			}
			if _, err := conn.Write(frame); err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer device.Close()
		buffer := make([]byte, 1<<17)
		for {
			frame, err := readFrame(conn, form, buffer)
			if err != nil {
				return
			}
			// Frames that the device does not accept are lost, as on a network cable.
			_, _ = device.Write(frame)
		}
	})
	return func() { conn.Close(); device.Close(); both.Wait() }, nil
}

// ReadFrame reads one frame from the peer's end of a socket.
func ReadFrame(conn net.Conn, form Form) ([]byte, error) {
	return readFrame(conn, form, make([]byte, 1<<17))
}

func readFrame(conn net.Conn, form Form, buffer []byte) ([]byte, error) {
	if form != Stream {
		n, err := conn.Read(buffer)
		return buffer[:n], err
	}
	if _, err := io.ReadFull(conn, buffer[:4]); err != nil {
		return nil, err
	}
	frame := buffer[:binary.BigEndian.Uint32(buffer)]
	_, err := io.ReadFull(conn, frame)
	return frame, err
}
