package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Requested is a process that a caller of the API started.
type Requested struct {
	Terminal   bool   // it runs on a terminal
	Cols, Rows uint16 // of the terminal
	Tag        string
}

// Requested returns the running processes that callers started, by PID.
func (s *Service) Requested() map[int]Requested {
	out := map[int]Requested{}
	for _, p := range s.table.list() {
		var r Requested
		if p.tty != nil {
			r.Terminal = true
			r.Cols, r.Rows = p.tty.size()
		}
		if p.tag != nil {
			r.Tag = *p.tag
		}
		out[p.pid] = r
	}
	return out
}

// Signal signals the process group of a command that a caller started, or another single process.
// It returns ESRCH if there is no such process.
func (s *Service) Signal(pid int, sig syscall.Signal) error {
	for _, p := range s.table.list() {
		if p.pid == pid {
			return p.signal(sig)
		}
	}
	return syscall.Kill(pid, sig)
}

// size returns the size of the terminal's window. It is zero if the program has ended.
func (t *terminal) size() (cols, rows uint16) {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // fails only if the file is closed
		if w, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			cols, rows = w.Col, w.Row
		}
	})
	return cols, rows
}
