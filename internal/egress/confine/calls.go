package confine

import "golang.org/x/sys/unix"

// plainCalls are allowed with any arguments, for the following purposes.
var plainCalls = []uint32{
	// Open descriptors. Truncation is not allowed, because audit files are among them.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_FDATASYNC,
	unix.SYS_PREAD64, unix.SYS_FSTATFS, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PIPE2, unix.SYS_SPLICE, unix.SYS_SENDFILE,
	// Certificates and the resolver's configuration.
	unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_UNAME,
	// The runtime's memory.
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
	// Threads, signals and time.
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	// Process and user IDs, and random numbers.
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_CAPGET, unix.SYS_GETRANDOM,
	// The poller.
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	// Existing sockets. listen is not allowed, because the only listener is inherited.
	unix.SYS_CONNECT, unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT,
	unix.SYS_SHUTDOWN, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDMMSG, unix.SYS_RECVMMSG,
}

// namespaces are the flags of clone that create a namespace.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// checkedCalls are allowed with some arguments only.
func checkedCalls(pid int) []check {
	return []check{
		// TCP and UDP, and the kernel's list of this host's addresses. Not Unix sockets, because
		// the host's services use them. Neither raw nor packet sockets, and no other netlink
		// protocol.
		{unix.SYS_SOCKET, [][]condition{
			{
				{0, allBits, []uint32{unix.AF_INET, unix.AF_INET6}},
				{1, 0xf, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}},
				{2, allBits, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}},
			},
			{
				{0, allBits, []uint32{unix.AF_NETLINK}},
				{2, allBits, []uint32{unix.NETLINK_ROUTE}},
			},
		}},
		// Neither SOL_IP nor the levels of rarer protocols, where most of the kernel's socket bugs
		// were.
		{unix.SYS_SETSOCKOPT, [][]condition{{{1, allBits, []uint32{unix.SOL_SOCKET, unix.SOL_TCP, unix.SOL_IPV6}}}}},
		// A new thread of this process, but no other process and no namespace.
		{unix.SYS_CLONE, [][]condition{{{0, unix.CLONE_THREAD | namespaces, []uint32{unix.CLONE_THREAD}}}}},
		// The runtime interrupts its own threads. Signals to other processes of the same user are
		// not allowed.
		{unix.SYS_TGKILL, [][]condition{{{0, allBits, []uint32{uint32(pid)}}}}},
		// Reading only, even without Landlock. The other flags create an unnamed file, which
		// disappears with its descriptor.
		{unix.SYS_OPENAT, [][]condition{
			{{2, unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC, []uint32{unix.O_RDONLY}}},
			{{2, unix.O_TMPFILE | unix.O_CREAT | unix.O_TRUNC, []uint32{unix.O_TMPFILE}}},
		}},
		// No new executable memory.
		{unix.SYS_MMAP, [][]condition{{{2, unix.PROT_EXEC, []uint32{0}}}}},
		{unix.SYS_MPROTECT, [][]condition{{{2, unix.PROT_EXEC, []uint32{0}}}}},
		// Without F_SETFL, an audit file stays append-only. Every inherited descriptor is already
		// non-blocking.
		{unix.SYS_FCNTL, [][]condition{{{1, allBits, []uint32{unix.F_GETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC}}}}},
		// The runtime names its memory. The other operations only read.
		{unix.SYS_PRCTL, [][]condition{{{0, allBits, []uint32{
			unix.PR_SET_VMA, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_DUMPABLE, unix.PR_GET_SECCOMP,
		}}}}},
	}
}
