package setup

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data. The machines that this is built for are little
// endian, so an argument's low half comes first.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

// Answers of the filter.
const (
	allow = unix.SECCOMP_RET_ALLOW
	// kill ends a process that uses another machine's numbers: no program does so by
	// mistake, and the list means nothing for them.
	kill = unix.SECCOMP_RET_KILL_PROCESS
	// refuse answers as if the caller lacked the right.
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// unknown answers as a kernel without the call would, so that libraries fall back.
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
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
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: foreign, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
	}
	// The most frequent calls have low numbers, and come first.
	for _, r := range ranges(slices.Concat(plainCalls, machineCalls)) {
		code = append(code,
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: r[1], SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: r[0], SkipTrue: 1},
			bpf.RetConstant{Val: allow})
	}
	for _, c := range checkedCalls {
		body := c.body()
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: uint8(len(body))})
		code = append(code, body...)
	}
	for _, c := range missingCalls {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: 1}, bpf.RetConstant{Val: unknown})
	}
	code = append(code,
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastKnown, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
		bpf.RetConstant{Val: unknown})
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, err
	}
	if len(raw) > 4096 {
		return nil, errors.New("the filter is longer than the kernel takes")
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
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
		bpf.LoadAbsolute{Off: offsetArguments + 8*uint32(c.argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
	}
	found, other := uint32(allow), refuse
	if c.deny {
		found, other = refuse, allow
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
			out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: family, SkipTrue: 1}, bpf.RetConstant{Val: allow})
		}
	}
	out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1}, bpf.RetConstant{Val: refuse},
		bpf.LoadAbsolute{Off: offsetArguments + 8*2, Size: 4})
	for _, protocol := range netlinkProtocols {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocol, SkipTrue: 1}, bpf.RetConstant{Val: allow})
	}
	return append(out, bpf.RetConstant{Val: refuse})
}

// filterCalls puts all threads of this process, and all that they start, under the
// filter.
func filterCalls() error {
	program, err := assemble()
	if err != nil {
		return err
	}
	header := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// TSYNC puts every thread under the filter or none.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&header)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has another filter", thread)
	}
	return nil
}
