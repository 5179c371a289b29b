package setup

import "golang.org/x/sys/unix"

// machineCalls lists the calls that only this architecture has. They are allowed with any
// arguments.
var machineCalls = []call{
	{"access", unix.SYS_ACCESS}, {"open", unix.SYS_OPEN}, {"creat", unix.SYS_CREAT}, {"stat", unix.SYS_STAT},
	{"lstat", unix.SYS_LSTAT}, {"mkdir", unix.SYS_MKDIR}, {"rmdir", unix.SYS_RMDIR}, {"rename", unix.SYS_RENAME},
	{"link", unix.SYS_LINK}, {"unlink", unix.SYS_UNLINK}, {"symlink", unix.SYS_SYMLINK}, {"readlink", unix.SYS_READLINK},
	{"chmod", unix.SYS_CHMOD}, {"chown", unix.SYS_CHOWN}, {"lchown", unix.SYS_LCHOWN}, {"utime", unix.SYS_UTIME},
	{"utimes", unix.SYS_UTIMES}, {"futimesat", unix.SYS_FUTIMESAT}, {"dup2", unix.SYS_DUP2},
	{"getdents", unix.SYS_GETDENTS}, {"mknod", unix.SYS_MKNOD}, {"poll", unix.SYS_POLL}, {"select", unix.SYS_SELECT},
	{"epoll_create", unix.SYS_EPOLL_CREATE}, {"epoll_wait", unix.SYS_EPOLL_WAIT}, {"eventfd", unix.SYS_EVENTFD},
	{"inotify_init", unix.SYS_INOTIFY_INIT}, {"signalfd", unix.SYS_SIGNALFD}, {"fork", unix.SYS_FORK},
	{"vfork", unix.SYS_VFORK}, {"getpgrp", unix.SYS_GETPGRP}, {"arch_prctl", unix.SYS_ARCH_PRCTL},
	{"pause", unix.SYS_PAUSE}, {"alarm", unix.SYS_ALARM}, {"time", unix.SYS_TIME}, {"pipe", unix.SYS_PIPE},
}
