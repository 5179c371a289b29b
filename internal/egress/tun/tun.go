// Package tun owns the TUN and TAP devices that connect a sandbox on the host's kernel to the
// egress gateway.
package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
)

// New creates a TUN device with the sandbox's address and a default route. It creates the device in
// the network namespace of the calling thread, which needs CAP_NET_ADMIN only in that namespace. It
// returns the gateway's end. The device and its namespace live as long as a descriptor of it is
// open, so the sandbox must not have one.
//
// Frames have no virtio header. Segments are at most as large as the MTU, and the default MTU is as
// large as segments with offloading would be.
func New(name string, mtu int) (*os.File, error) { return newDevice(name, mtu, unix.IFF_TUN) }

// NewEthernet is like New, but creates a TAP device. Its gateway end is of the kind Ethernet. It is
// for a peer that needs an Ethernet interface, such as a bridge or a microVM's relay.
func NewEthernet(name string, mtu int) (*os.File, error) {
	return newDevice(name, mtu, unix.IFF_TAP)
}

func newDevice(name string, mtu int, form uint16) (_ *os.File, err error) {
	if mtu == 0 {
		mtu = egress.MTU
	}
	// IPv4 requires an MTU of at least 576, and parse accepts at most egress.MTU.
	if mtu < 576 || mtu > egress.MTU {
		return nil, fmt.Errorf("tap: an MTU of %d is not between 576 and %d", mtu, egress.MTU)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("tap: the name %q: %w", name, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("tap: /dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	request.SetUint16(form | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("tap: make %s: %w", name, err)
	}
	if err := configure(name, mtu); err != nil {
		return nil, fmt.Errorf("tap: configure %s: %w", name, err)
	}
	// Open duplicates the descriptor and adds the duplicate to the poller.
	return os.NewFile(uintptr(fd), "tap"), nil
}

// Configure sets the sandbox's address and a default route on an existing network device, in the
// network namespace of the calling thread. It is for the device of a virtual machine.
func Configure(name string) error { return configure(name, egress.MTU) }

func configure(name string, mtu int) error {
	// IPv6 would only send what the gateway drops and records. A kernel without IPv6 has no such
	// file, so an error is ignored.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-egress.SandboxPrefix.Bits()))
	for _, step := range []struct {
		what string
		call uint
		set  func(r *unix.Ifreq) error
	}{
		{"MTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(mtu)); return nil }},
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(egress.SandboxPrefix.Addr().AsSlice()) }},
		{"mask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask) }},
		{"up", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }},
	} {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = step.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, step.call, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	if err := defaultRoute(); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

// defaultRoute adds a default route to the gateway's address.
func defaultRoute() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + 4
	m := make([]byte, 0, size)
	m = binary.NativeEndian.AppendUint32(m, size)
	m = binary.NativeEndian.AppendUint16(m, unix.RTM_NEWROUTE)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m = append(m, 1, 0, 0, 0, 0, 0, 0, 0) // sequence 1, from the kernel's choice of port
	m = append(m, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0)
	m = binary.NativeEndian.AppendUint16(m, unix.SizeofRtAttr+4)
	m = binary.NativeEndian.AppendUint16(m, unix.RTA_GATEWAY)
	m = append(m, egress.Gateway.AsSlice()...)
	if err := unix.Sendto(s, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, reply, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is not an acknowledgement")
	}
	if code := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
