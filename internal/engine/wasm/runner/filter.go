package runner

import (
	"os"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
)

// calls lists the calls that are allowed with any arguments. Every call that is neither here nor in
// callFilter is refused, including calls of later kernels.
var calls = []uint32{
	// Files. No call changes an owner or runs a program.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_CLOSE,
	unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT,
	unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_READLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
	unix.SYS_FCHMODAT2, unix.SYS_UTIMENSAT, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_GETDENTS64,
	unix.SYS_FCNTL, unix.SYS_GETCWD, unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_PIPE2,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	// Memory.
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MREMAP,
	// Threads, signals and time.
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_GETPID,
	unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_SECCOMP,
}

// allowIf allows a call if the bits of an argument under the mask have a value.
func allowIf(call uint32, argument int, mask, value uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 5},
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.Refuse},
		bpf.RetConstant{Val: seccomp.Allow},
	}
}

// callFilter allows the calls that a module and Go's runtime need.
func callFilter() []bpf.Instruction {
	var code []bpf.Instruction
	for _, call := range slices.Concat(calls, machineCalls) {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Allow})
	}
	code = append(code, allowIf(unix.SYS_CLONE, 0, unix.CLONE_THREAD, unix.CLONE_THREAD)...)
	// The Go runtime interrupts its own threads.
	code = append(code, allowIf(unix.SYS_TGKILL, 0, ^uint32(0), uint32(os.Getpid()))...)
	// The Go runtime names its memory.
	code = append(code, allowIf(unix.SYS_PRCTL, 0, ^uint32(0), unix.PR_SET_VMA)...)
	return append(code, bpf.RetConstant{Val: seccomp.Refuse})
}

// codeFilter refuses new executable memory, and further filters.
func codeFilter() []bpf.Instruction {
	code := append(allowIf(unix.SYS_MMAP, 2, unix.PROT_EXEC, 0), allowIf(unix.SYS_MPROTECT, 2, unix.PROT_EXEC, 0)...)
	return append(code,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SECCOMP, SkipTrue: 1}, bpf.RetConstant{Val: seccomp.Refuse},
		bpf.RetConstant{Val: seccomp.Allow})
}

// install applies a filter to all threads.
func install(code []bpf.Instruction) error {
	program, err := seccomp.Assemble(code)
	if err != nil {
		return err
	}
	return seccomp.Install(program)
}
