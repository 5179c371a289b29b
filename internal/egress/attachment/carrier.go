package attachment

import (
	"errors"

	"golang.org/x/sys/unix"
)

// carrier is what carries an attachment's frames.
type carrier int

const (
	// packetSocket keeps the borders of frames and has an end.
	packetSocket carrier = iota
	// datagramSocket keeps the borders of frames. It does not tell that its peer is
	// closed, and an empty datagram reads as an end does.
	datagramSocket
	// byteStream has the length of a frame before it, in four bytes, as QEMU has it.
	byteStream
	// device is a TUN or TAP device, which is no socket.
	device
)

// ends reports whether a read tells that the other end is closed. A device tells that
// it was deleted, by an error.
func (c carrier) ends() bool { return c == packetSocket || c == byteStream }

// carrierOf returns what a descriptor is, and refuses those that do not belong to the
// kind.
func carrierOf(kind Kind, fd int) (carrier, error) {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return 0, err
	}
	// Not TUNGETIFF: the confined gateway has no ioctl. A device whose frames begin
	// with another header sends nothing that parse lets through.
	isDevice := info.Mode&unix.S_IFMT == unix.S_IFCHR && info.Rdev == unix.Mkdev(10, 200)
	if isDevice && kind != Packets {
		return device, nil
	}
	if kind == Tap {
		return 0, errors.New("not a TUN device")
	}
	form, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return 0, err
	}
	if kind == Packets {
		if form != unix.SOCK_SEQPACKET {
			return 0, errors.New("not a socket that keeps the borders of packets")
		}
		return packetSocket, nil
	}
	// A port of the host would let every user of the host in.
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, err
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return 0, err
	}
	if domain != unix.AF_UNIX || listens != 0 {
		return 0, errors.New("not a connected Unix socket and not a TAP device")
	}
	switch form {
	case unix.SOCK_SEQPACKET:
		return packetSocket, nil
	case unix.SOCK_DGRAM:
		return datagramSocket, nil
	case unix.SOCK_STREAM:
		return byteStream, nil
	default:
		return 0, errors.New("a socket of an unknown form")
	}
}

// write sends one frame without waiting. In a stream, a part of it may have been sent.
func (c carrier) write(fd int, parts [][]byte) (int, error) {
	if c == device {
		return unix.Writev(fd, parts)
	}
	return unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
