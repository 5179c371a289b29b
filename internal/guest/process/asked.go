package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Asked is a process that a caller had run.
type Asked struct {
	Terminal   bool   // it runs on a terminal
	Cols, Rows uint16 // of the terminal
	Tag        string
}

// Asked returns the running processes that callers had run, by number.
func (s *Service) Asked() map[int]Asked {
	out := map[int]Asked{}
	for _, p := range s.table.list() {
		var a Asked
		if p.tty != nil {
			a.Terminal = true
			a.Cols, a.Rows = p.tty.size()
		}
		if p.tag != nil {
			a.Tag = *p.tag
		}
		out[p.pid] = a
	}
	return out
}

// Signal signals a command that a caller had run, with its whole group, or another process alone.
// It fails with ESRCH if there is none.
func (s *Service) Signal(pid int, sig syscall.Signal) error {
	for _, p := range s.table.list() {
		if p.pid == pid {
			return p.signal(sig)
		}
	}
	return syscall.Kill(pid, sig)
}

// size returns the window's size, or zero if it is unknown because the program has ended.
func (t *terminal) size() (cols, rows uint16) {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // fails on a file that is closed
		if w, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			cols, rows = w.Col, w.Row
		}
	})
	return cols, rows
}
