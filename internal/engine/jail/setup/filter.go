package setup

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
)

// lastReviewed is the highest reviewed system call number. Programs see later calls as not
// implemented.
const lastReviewed = 470

// namespaceFlags are the flags that create namespaces. In a namespace of their own, programs have
// capabilities, and with them reach much more kernel code that they could attack.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// missingCalls lists the calls that return ENOSYS, as on a kernel without them. Programs have an
// alternative for each, but some exit if a call is refused.
var missingCalls = []call{
	// The flags of clone3 are in memory, where no filter can read them.
	{"clone3", unix.SYS_CLONE3},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP}, {"io_uring_enter", unix.SYS_IO_URING_ENTER}, {"io_uring_register", unix.SYS_IO_URING_REGISTER},
	{"userfaultfd", unix.SYS_USERFAULTFD}, {"memfd_secret", unix.SYS_MEMFD_SECRET},
}

// check is a call that is allowed if an argument has an accepted value, and refused otherwise.
type check struct {
	call
	argument int
	// The lower half of the argument, under the mask, must be one of values.
	mask   uint32
	values []uint32
	// deny inverts the condition.
	deny bool
}

// checkedCalls lists the calls that are allowed with certain arguments only.
var checkedCalls = []check{
	{call: call{"clone", unix.SYS_CLONE}, argument: 0, mask: namespaceFlags, values: []uint32{0}},
	// TIOCSTI types into a terminal that the caller shares with another program. TIOCLINUX pastes
	// into a console.
	{call: call{"ioctl", unix.SYS_IOCTL}, argument: 1, mask: math.MaxUint32, values: []uint32{unix.TIOCSTI, unix.TIOCLINUX}, deny: true},
	// These families exclude raw packets (AF_PACKET), hypervisors (AF_VSOCK), kernel cryptography
	// (AF_ALG) and rarely maintained protocols.
	{call: call{"socket", unix.SYS_SOCKET}, argument: 0, mask: math.MaxUint32, values: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
	// Only the value that is already set, and the query for it. Other values turn off memory
	// protections.
	{call: call{"personality", unix.SYS_PERSONALITY}, argument: 0, mask: math.MaxUint32, values: []uint32{0, math.MaxUint32}},
	// Only flags that create no namespace, such as those with which a thread stops sharing its
	// files or its directory.
	{call: call{"unshare", unix.SYS_UNSHARE}, argument: 0, mask: namespaceFlags, values: []uint32{0}},
}

// netlinkProtocols are the protocols of AF_NETLINK for routes and for the list of sockets. The
// audit log, netfilter and kernel events are not among them.
var netlinkProtocols = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG}

// assemble builds the filter.
func assemble() ([]unix.SockFilter, error) {
	var code []bpf.Instruction
	// The most frequent calls have low numbers and come first.
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
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastReviewed, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.Refuse},
		bpf.RetConstant{Val: seccomp.Unknown})
	return seccomp.Assemble(code)
}

// ranges merges consecutive numbers.
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

// body returns the instructions of the check. They end in a verdict on every path.
func (c check) body() []bpf.Instruction {
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(c.argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
	}
	matched, other := uint32(seccomp.Allow), seccomp.Refuse
	if c.deny {
		matched, other = seccomp.Refuse, seccomp.Allow
	}
	if c.number == unix.SYS_SOCKET {
		return append(out, socketBody(c.values)...)
	}
	for i, value := range c.values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(c.values) - i)})
	}
	return append(out, bpf.RetConstant{Val: other}, bpf.RetConstant{Val: matched})
}

// socketBody checks the loaded family and, for AF_NETLINK, the protocol.
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

// filterCalls applies the filter to all threads of this process and everything that they start.
func filterCalls() error {
	program, err := assemble()
	if err != nil {
		return err
	}
	return seccomp.Install(program)
}
