package attachmenttest

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// WatchNamespace returns a function that reports whether the network namespace of a process still
// exists. It holds no descriptor of the namespace, which would keep it alive. Instead it uses the
// number that the kernel assigns to a namespace and removes with it.
func WatchNamespace(t testing.TB, pid int) (alive func() bool) {
	t.Helper()
	byPID := attribute(unix.NETNSA_PID, uint32(pid))
	if _, err := namespaceCall(unix.RTM_NEWNSID, 0, byPID, attribute(unix.NETNSA_NSID, ^uint32(0))); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	found, err := namespaceCall(unix.RTM_GETNSID, 0, byPID)
	if err != nil || len(found) != 1 {
		t.Fatalf("namespaces of %d: %v, %v", pid, found, err)
	}
	return func() bool {
		t.Helper()
		all, err := namespaceCall(unix.RTM_GETNSID, unix.NLM_F_DUMP)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(all, found[0])
	}
}

func attribute(kind uint16, value uint32) []byte {
	a := binary.NativeEndian.AppendUint16(nil, unix.SizeofRtAttr+4)
	a = binary.NativeEndian.AppendUint16(a, kind)
	return binary.NativeEndian.AppendUint32(a, value)
}

// namespaceCall makes a request about namespaces and returns the numbers in the answer.
func namespaceCall(kind, flags uint16, attributes ...[]byte) (numbers []uint32, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	if flags == 0 {
		flags = unix.NLM_F_ACK
	}
	body := make([]byte, 4) // the family, unspecified, and its padding
	for _, a := range attributes {
		body = append(body, a...)
	}
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(append(m, 1, 0, 0, 0, 0, 0, 0, 0), body...)
	if err := unix.Sendto(s, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	reply := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, reply, 0)
		if err != nil {
			return nil, err
		}
		for data := reply[:n]; len(data) >= unix.SizeofNlMsghdr; {
			size := binary.NativeEndian.Uint32(data)
			message := data[unix.SizeofNlMsghdr:size]
			switch binary.NativeEndian.Uint16(data[4:]) {
			case unix.NLMSG_DONE:
				return numbers, nil
			case unix.NLMSG_ERROR:
				if code := int32(binary.NativeEndian.Uint32(message)); code != 0 {
					return numbers, unix.Errno(-code)
				}
				return numbers, nil
			}
			for rest := message[4:]; len(rest) >= unix.SizeofRtAttr+4; {
				if binary.NativeEndian.Uint16(rest[2:]) == unix.NETNSA_NSID {
					numbers = append(numbers, binary.NativeEndian.Uint32(rest[4:]))
				}
				rest = rest[(binary.NativeEndian.Uint16(rest)+3)&^3:]
			}
			data = data[(size+3)&^3:]
		}
	}
}
