package setup

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
)

// lastKnown is the highest number that was reviewed. Later calls do not exist inside.
const lastKnown = 470

// namespaceFlags make namespaces. Inside one of their own, programs have capabilities
// over it, and with them much more of the kernel's code to attack.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// missingCalls are answered as by a kernel without them. Programs have another way for
// each, and some end if the answer is a refusal.
var missingCalls = []call{
	// Its flags are in memory, where no filter can read them.
	{"clone3", unix.SYS_CLONE3},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP}, {"io_uring_enter", unix.SYS_IO_URING_ENTER}, {"io_uring_register", unix.SYS_IO_URING_REGISTER},
	{"userfaultfd", unix.SYS_USERFAULTFD}, {"memfd_secret", unix.SYS_MEMFD_SECRET},
}

// check is a call that may be made if an argument is right. Otherwise it is refused.
type check struct {
	call
	argument int
	// mask and values: the argument's low half under the mask must be one of values.
	mask   uint32
	values []uint32
	// deny inverts the condition.
	deny bool
}

// checkedCalls may be made with some arguments only.
var checkedCalls = []check{
	{call: call{"clone", unix.SYS_CLONE}, argument: 0, mask: namespaceFlags, values: []uint32{0}},
	// TIOCSTI types into a terminal that the caller shares with another program, and
	// TIOCLINUX pastes into a console.
	{call: call{"ioctl", unix.SYS_IOCTL}, argument: 1, mask: math.MaxUint32, values: []uint32{unix.TIOCSTI, unix.TIOCLINUX}, deny: true},
	// No raw packets (AF_PACKET), no hypervisor (AF_VSOCK), no kernel cryptography (AF_ALG) and
	// none of the rarely maintained protocols.
	{call: call{"socket", unix.SYS_SOCKET}, argument: 0, mask: math.MaxUint32, values: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
	// Only the value that is set already, and the query for it: other values turn off protections
	// of memory.
	{call: call{"personality", unix.SYS_PERSONALITY}, argument: 0, mask: math.MaxUint32, values: []uint32{0, math.MaxUint32}},
	// Only flags that make no namespace, such as those with which a thread stops sharing its files
	// or its directory.
	{call: call{"unshare", unix.SYS_UNSHARE}, argument: 0, mask: namespaceFlags, values: []uint32{0}},
}

// netlinkProtocols are those of AF_NETLINK: routes, and the list of sockets. Not the
// audit log, netfilter or the kernel's events.
var netlinkProtocols = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG}

// assemble makes the filter.
func assemble() ([]unix.SockFilter, error) {
	var code []bpf.Instruction
	// The most frequent calls have low numbers, and come first.
	for _, r := range ranges(slices.Concat(plainCalls, machineCalls)) {
		code = append(code,
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: r[1], SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: r[0], SkipTrue: 1},
			bpf.RetConstant{Val: seccomp.Allow})
	}
	for _, c := range checkedCalls {
		body := c.body()
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: uint8(len(body))})
		code = append(code, body...)
	}
	for _, c := range missingCalls {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Unknown})
	}
	code = append(code,
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastKnown, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.Refuse},
		bpf.RetConstant{Val: seccomp.Unknown})
	return seccomp.Assemble(code)
}

// ranges joins numbers that follow each other.
func ranges(calls []call) (list [][2]uint32) {
	sorted := slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(a.number, b.number) })
	for _, c := range sorted {
		if n := len(list); n > 0 && list[n-1][1]+1 >= c.number {
			list[n-1][1] = c.number
			continue
		}
		list = append(list, [2]uint32{c.number, c.number})
	}
	return list
}

// body returns an answer on every path.
func (c check) body() []bpf.Instruction {
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(c.argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
	}
	found, other := uint32(seccomp.Allow), seccomp.Refuse
	if c.deny {
		found, other = seccomp.Refuse, seccomp.Allow
	}
	if c.number == unix.SYS_SOCKET {
		return append(out, socketBody(c.values)...)
	}
	for i, value := range c.values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(c.values) - i)})
	}
	return append(out, bpf.RetConstant{Val: other}, bpf.RetConstant{Val: found})
}

// socketBody checks the family, which is loaded, and for AF_NETLINK the protocol.
func socketBody(families []uint32) (out []bpf.Instruction) {
	for _, family := range families {
		if family != unix.AF_NETLINK {
			out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: family, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Allow})
		}
	}
	out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Refuse},
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(2), Size: 4})
	for _, protocol := range netlinkProtocols {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocol, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Allow})
	}
	return append(out, bpf.RetConstant{Val: seccomp.Refuse})
}

// filterCalls puts all threads of this process, and all that they start, under the
// filter.
func filterCalls() error {
	program, err := assemble()
	if err != nil {
		return err
	}
	return seccomp.Install(program)
}
