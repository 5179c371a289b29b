package setup

import "golang.org/x/sys/unix"

// call is a system call with its number on this architecture.
type call struct {
	name   string
	number uint32
}

// plainCalls lists the calls that are allowed with any arguments. Every call that is neither here
// nor in checkedCalls is refused, including calls of later kernels. testdata/calls_*.golden has the
// full list for reviewers.
var plainCalls = []call{
	// Files by name and by descriptor.
	{"faccessat", unix.SYS_FACCESSAT}, {"faccessat2", unix.SYS_FACCESSAT2}, {"openat", unix.SYS_OPENAT},
	{"openat2", unix.SYS_OPENAT2}, {"close", unix.SYS_CLOSE}, {"close_range", unix.SYS_CLOSE_RANGE},
	{"read", unix.SYS_READ}, {"write", unix.SYS_WRITE}, {"readv", unix.SYS_READV}, {"writev", unix.SYS_WRITEV},
	{"pread64", unix.SYS_PREAD64}, {"pwrite64", unix.SYS_PWRITE64}, {"preadv", unix.SYS_PREADV},
	{"pwritev", unix.SYS_PWRITEV}, {"preadv2", unix.SYS_PREADV2}, {"pwritev2", unix.SYS_PWRITEV2},
	{"lseek", unix.SYS_LSEEK}, {"fstat", unix.SYS_FSTAT}, {"newfstatat", unix.SYS_NEWFSTATAT}, {"statx", unix.SYS_STATX},
	{"statfs", unix.SYS_STATFS}, {"fstatfs", unix.SYS_FSTATFS}, {"chdir", unix.SYS_CHDIR}, {"fchdir", unix.SYS_FCHDIR},
	{"getcwd", unix.SYS_GETCWD}, {"mkdirat", unix.SYS_MKDIRAT}, {"renameat", unix.SYS_RENAMEAT},
	{"renameat2", unix.SYS_RENAMEAT2}, {"linkat", unix.SYS_LINKAT}, {"unlinkat", unix.SYS_UNLINKAT},
	{"symlinkat", unix.SYS_SYMLINKAT}, {"readlinkat", unix.SYS_READLINKAT}, {"fchmod", unix.SYS_FCHMOD},
	{"fchmodat", unix.SYS_FCHMODAT}, {"fchmodat2", unix.SYS_FCHMODAT2}, {"fchown", unix.SYS_FCHOWN},
	{"fchownat", unix.SYS_FCHOWNAT}, {"utimensat", unix.SYS_UTIMENSAT}, {"truncate", unix.SYS_TRUNCATE},
	{"ftruncate", unix.SYS_FTRUNCATE}, {"fallocate", unix.SYS_FALLOCATE}, {"fsync", unix.SYS_FSYNC},
	{"fdatasync", unix.SYS_FDATASYNC}, {"sync", unix.SYS_SYNC}, {"syncfs", unix.SYS_SYNCFS},
	{"sync_file_range", unix.SYS_SYNC_FILE_RANGE}, {"fadvise64", unix.SYS_FADVISE64}, {"readahead", unix.SYS_READAHEAD},
	{"copy_file_range", unix.SYS_COPY_FILE_RANGE}, {"sendfile", unix.SYS_SENDFILE}, {"splice", unix.SYS_SPLICE},
	{"tee", unix.SYS_TEE}, {"vmsplice", unix.SYS_VMSPLICE}, {"dup", unix.SYS_DUP}, {"dup3", unix.SYS_DUP3},
	{"fcntl", unix.SYS_FCNTL}, {"flock", unix.SYS_FLOCK}, {"umask", unix.SYS_UMASK}, {"getdents64", unix.SYS_GETDENTS64},
	{"mknodat", unix.SYS_MKNODAT}, {"cachestat", unix.SYS_CACHESTAT},
	// Extended attributes.
	{"getxattr", unix.SYS_GETXATTR}, {"lgetxattr", unix.SYS_LGETXATTR}, {"fgetxattr", unix.SYS_FGETXATTR},
	{"setxattr", unix.SYS_SETXATTR}, {"lsetxattr", unix.SYS_LSETXATTR}, {"fsetxattr", unix.SYS_FSETXATTR},
	{"listxattr", unix.SYS_LISTXATTR}, {"llistxattr", unix.SYS_LLISTXATTR}, {"flistxattr", unix.SYS_FLISTXATTR},
	{"removexattr", unix.SYS_REMOVEXATTR}, {"lremovexattr", unix.SYS_LREMOVEXATTR},
	{"fremovexattr", unix.SYS_FREMOVEXATTR}, {"getxattrat", unix.SYS_GETXATTRAT}, {"setxattrat", unix.SYS_SETXATTRAT},
	{"listxattrat", unix.SYS_LISTXATTRAT}, {"removexattrat", unix.SYS_REMOVEXATTRAT},
	// Waiting for files and for changes of files.
	{"ppoll", unix.SYS_PPOLL}, {"pselect6", unix.SYS_PSELECT6}, {"epoll_create1", unix.SYS_EPOLL_CREATE1},
	{"epoll_ctl", unix.SYS_EPOLL_CTL}, {"epoll_pwait", unix.SYS_EPOLL_PWAIT}, {"epoll_pwait2", unix.SYS_EPOLL_PWAIT2},
	{"eventfd2", unix.SYS_EVENTFD2}, {"inotify_init1", unix.SYS_INOTIFY_INIT1},
	{"inotify_add_watch", unix.SYS_INOTIFY_ADD_WATCH}, {"inotify_rm_watch", unix.SYS_INOTIFY_RM_WATCH},
	{"signalfd4", unix.SYS_SIGNALFD4}, {"timerfd_create", unix.SYS_TIMERFD_CREATE},
	{"timerfd_settime", unix.SYS_TIMERFD_SETTIME}, {"timerfd_gettime", unix.SYS_TIMERFD_GETTIME},
	{"io_setup", unix.SYS_IO_SETUP}, {"io_destroy", unix.SYS_IO_DESTROY}, {"io_submit", unix.SYS_IO_SUBMIT},
	{"io_getevents", unix.SYS_IO_GETEVENTS}, {"io_pgetevents", unix.SYS_IO_PGETEVENTS}, {"io_cancel", unix.SYS_IO_CANCEL},
	// Memory.
	{"brk", unix.SYS_BRK}, {"mmap", unix.SYS_MMAP}, {"munmap", unix.SYS_MUNMAP}, {"mremap", unix.SYS_MREMAP},
	{"mprotect", unix.SYS_MPROTECT}, {"madvise", unix.SYS_MADVISE}, {"mincore", unix.SYS_MINCORE},
	{"msync", unix.SYS_MSYNC}, {"mlock", unix.SYS_MLOCK}, {"mlock2", unix.SYS_MLOCK2}, {"mlockall", unix.SYS_MLOCKALL},
	{"munlock", unix.SYS_MUNLOCK}, {"munlockall", unix.SYS_MUNLOCKALL}, {"memfd_create", unix.SYS_MEMFD_CREATE},
	{"pkey_alloc", unix.SYS_PKEY_ALLOC}, {"pkey_free", unix.SYS_PKEY_FREE}, {"pkey_mprotect", unix.SYS_PKEY_MPROTECT},
	{"membarrier", unix.SYS_MEMBARRIER}, {"mseal", unix.SYS_MSEAL}, {"map_shadow_stack", unix.SYS_MAP_SHADOW_STACK},
	{"process_mrelease", unix.SYS_PROCESS_MRELEASE},
	// Processes and threads.
	{"execve", unix.SYS_EXECVE}, {"execveat", unix.SYS_EXECVEAT}, {"wait4", unix.SYS_WAIT4}, {"waitid", unix.SYS_WAITID},
	{"exit", unix.SYS_EXIT}, {"exit_group", unix.SYS_EXIT_GROUP}, {"getpid", unix.SYS_GETPID},
	{"getppid", unix.SYS_GETPPID}, {"gettid", unix.SYS_GETTID}, {"getpgid", unix.SYS_GETPGID},
	{"setpgid", unix.SYS_SETPGID}, {"getsid", unix.SYS_GETSID}, {"setsid", unix.SYS_SETSID}, {"kill", unix.SYS_KILL},
	{"tkill", unix.SYS_TKILL}, {"tgkill", unix.SYS_TGKILL}, {"pidfd_open", unix.SYS_PIDFD_OPEN},
	{"pidfd_send_signal", unix.SYS_PIDFD_SEND_SIGNAL}, {"set_tid_address", unix.SYS_SET_TID_ADDRESS},
	{"set_robust_list", unix.SYS_SET_ROBUST_LIST}, {"get_robust_list", unix.SYS_GET_ROBUST_LIST},
	{"futex", unix.SYS_FUTEX}, {"futex_waitv", unix.SYS_FUTEX_WAITV}, {"futex_wake", unix.SYS_FUTEX_WAKE},
	{"futex_wait", unix.SYS_FUTEX_WAIT}, {"futex_requeue", unix.SYS_FUTEX_REQUEUE}, {"sched_yield", unix.SYS_SCHED_YIELD},
	{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY}, {"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY},
	{"sched_getparam", unix.SYS_SCHED_GETPARAM}, {"sched_setparam", unix.SYS_SCHED_SETPARAM},
	{"sched_getscheduler", unix.SYS_SCHED_GETSCHEDULER}, {"sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER},
	{"sched_getattr", unix.SYS_SCHED_GETATTR}, {"sched_setattr", unix.SYS_SCHED_SETATTR},
	{"sched_get_priority_max", unix.SYS_SCHED_GET_PRIORITY_MAX},
	{"sched_get_priority_min", unix.SYS_SCHED_GET_PRIORITY_MIN},
	{"sched_rr_get_interval", unix.SYS_SCHED_RR_GET_INTERVAL}, {"getpriority", unix.SYS_GETPRIORITY},
	{"setpriority", unix.SYS_SETPRIORITY}, {"ioprio_get", unix.SYS_IOPRIO_GET}, {"ioprio_set", unix.SYS_IOPRIO_SET},
	{"getrlimit", unix.SYS_GETRLIMIT}, {"setrlimit", unix.SYS_SETRLIMIT}, {"prlimit64", unix.SYS_PRLIMIT64},
	{"getrusage", unix.SYS_GETRUSAGE}, {"times", unix.SYS_TIMES}, {"prctl", unix.SYS_PRCTL}, {"rseq", unix.SYS_RSEQ},
	{"restart_syscall", unix.SYS_RESTART_SYSCALL}, {"getcpu", unix.SYS_GETCPU}, {"rt_sigaction", unix.SYS_RT_SIGACTION},
	{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK}, {"rt_sigpending", unix.SYS_RT_SIGPENDING},
	{"rt_sigreturn", unix.SYS_RT_SIGRETURN}, {"rt_sigsuspend", unix.SYS_RT_SIGSUSPEND},
	{"rt_sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT}, {"rt_sigqueueinfo", unix.SYS_RT_SIGQUEUEINFO},
	{"rt_tgsigqueueinfo", unix.SYS_RT_TGSIGQUEUEINFO}, {"sigaltstack", unix.SYS_SIGALTSTACK}, {"kcmp", unix.SYS_KCMP},
	// Debuggers. The kernel limits them to dumpable processes of the same user.
	{"ptrace", unix.SYS_PTRACE}, {"process_vm_readv", unix.SYS_PROCESS_VM_READV},
	{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV}, {"pidfd_getfd", unix.SYS_PIDFD_GETFD},
	// Users and rights. These calls can only reduce rights.
	{"getuid", unix.SYS_GETUID}, {"geteuid", unix.SYS_GETEUID}, {"getgid", unix.SYS_GETGID},
	{"getegid", unix.SYS_GETEGID}, {"getresuid", unix.SYS_GETRESUID}, {"getresgid", unix.SYS_GETRESGID},
	{"getgroups", unix.SYS_GETGROUPS}, {"setuid", unix.SYS_SETUID}, {"setgid", unix.SYS_SETGID},
	{"setreuid", unix.SYS_SETREUID}, {"setregid", unix.SYS_SETREGID}, {"setresuid", unix.SYS_SETRESUID},
	{"setresgid", unix.SYS_SETRESGID}, {"setgroups", unix.SYS_SETGROUPS}, {"setfsuid", unix.SYS_SETFSUID},
	{"setfsgid", unix.SYS_SETFSGID}, {"capget", unix.SYS_CAPGET}, {"capset", unix.SYS_CAPSET},
	{"seccomp", unix.SYS_SECCOMP}, {"landlock_create_ruleset", unix.SYS_LANDLOCK_CREATE_RULESET},
	{"landlock_add_rule", unix.SYS_LANDLOCK_ADD_RULE}, {"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF},
	// Time.
	{"clock_gettime", unix.SYS_CLOCK_GETTIME}, {"clock_getres", unix.SYS_CLOCK_GETRES},
	{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP}, {"nanosleep", unix.SYS_NANOSLEEP},
	{"gettimeofday", unix.SYS_GETTIMEOFDAY}, {"getitimer", unix.SYS_GETITIMER}, {"setitimer", unix.SYS_SETITIMER},
	{"timer_create", unix.SYS_TIMER_CREATE}, {"timer_settime", unix.SYS_TIMER_SETTIME},
	{"timer_gettime", unix.SYS_TIMER_GETTIME}, {"timer_getoverrun", unix.SYS_TIMER_GETOVERRUN},
	{"timer_delete", unix.SYS_TIMER_DELETE},
	// Sockets. Their families are checked where they are created.
	{"socketpair", unix.SYS_SOCKETPAIR}, {"bind", unix.SYS_BIND}, {"connect", unix.SYS_CONNECT},
	{"listen", unix.SYS_LISTEN}, {"accept", unix.SYS_ACCEPT}, {"accept4", unix.SYS_ACCEPT4},
	{"getsockname", unix.SYS_GETSOCKNAME}, {"getpeername", unix.SYS_GETPEERNAME}, {"getsockopt", unix.SYS_GETSOCKOPT},
	{"setsockopt", unix.SYS_SETSOCKOPT}, {"shutdown", unix.SYS_SHUTDOWN}, {"sendto", unix.SYS_SENDTO},
	{"recvfrom", unix.SYS_RECVFROM}, {"sendmsg", unix.SYS_SENDMSG}, {"recvmsg", unix.SYS_RECVMSG},
	{"sendmmsg", unix.SYS_SENDMMSG}, {"recvmmsg", unix.SYS_RECVMMSG},
	// Messages, semaphores and shared memory, in the sandbox's own IPC namespace.
	{"pipe2", unix.SYS_PIPE2}, {"shmget", unix.SYS_SHMGET}, {"shmat", unix.SYS_SHMAT}, {"shmdt", unix.SYS_SHMDT},
	{"shmctl", unix.SYS_SHMCTL}, {"semget", unix.SYS_SEMGET}, {"semop", unix.SYS_SEMOP},
	{"semtimedop", unix.SYS_SEMTIMEDOP}, {"semctl", unix.SYS_SEMCTL}, {"msgget", unix.SYS_MSGGET},
	{"msgsnd", unix.SYS_MSGSND}, {"msgrcv", unix.SYS_MSGRCV}, {"msgctl", unix.SYS_MSGCTL}, {"mq_open", unix.SYS_MQ_OPEN},
	{"mq_unlink", unix.SYS_MQ_UNLINK}, {"mq_timedsend", unix.SYS_MQ_TIMEDSEND},
	{"mq_timedreceive", unix.SYS_MQ_TIMEDRECEIVE}, {"mq_notify", unix.SYS_MQ_NOTIFY},
	{"mq_getsetattr", unix.SYS_MQ_GETSETATTR},
	// Information about the system.
	{"uname", unix.SYS_UNAME}, {"sysinfo", unix.SYS_SYSINFO}, {"getrandom", unix.SYS_GETRANDOM},
}
