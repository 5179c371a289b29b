package attachment

import (
	"errors"

	"golang.org/x/sys/unix"
)

// carrier is the kind of descriptor that carries an attachment's frames.
type carrier int

const (
	// packetSocket preserves frame boundaries and reports when the peer has closed it.
	packetSocket carrier = iota
	// datagramSocket preserves frame boundaries. It does not report when the peer has closed it,
	// and an empty datagram reads like an end.
	datagramSocket
	// byteStream precedes each frame by its length in four bytes, like QEMU.
	byteStream
	// device is a TUN or TAP device, which is not a socket.
	device
)

// ends reports whether a read detects that the peer has closed its end. A read of a device returns
// an error when the device is deleted.
func (c carrier) ends() bool { return c == packetSocket || c == byteStream }

// carrierOf returns the carrier of a descriptor, or an error if the descriptor does not fit the
// kind.
func carrierOf(kind Kind, fd int) (carrier, error) {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return 0, err
	}
	// Do not use TUNGETIFF, because the confined gateway may not call ioctl. If a device's frames
	// begin with another header, parse drops all of them.
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
			return 0, errors.New("not a socket that keeps packet boundaries")
		}
		return packetSocket, nil
	}
	// A network port would be open to every user of the host.
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

// write sends one frame without blocking. In a stream, it may send a part.
func (c carrier) write(fd int, parts [][]byte) (int, error) {
	if c == device {
		return unix.Writev(fd, parts)
	}
	return unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
