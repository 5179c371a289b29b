package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hangUp has the effect that the end of an SSH connection has. A program on a terminal and the
// program in the terminal's foreground get SIGHUP. For other programs, the input ends and writing
// fails. So a server that was started with redirected output outlives its connection.
func (p *process) hangUp() {
	select {
	case <-p.done:
		return
	default:
	}
	if p.tty != nil {
		if group := p.tty.foreground(); group > 1 && group != p.pid {
			// An error means that the group has ended.
			_ = syscall.Kill(-group, syscall.SIGHUP)
		}
		// An error means that the program has ended.
		_ = p.signal(syscall.SIGHUP)
		return
	}
	if p.input != nil {
		p.input.close()
	}
	if p.output.currentListeners() != nil {
		return // another stream shows the output
	}
	for _, f := range p.pipes {
		_ = f.Close() // only read from
	}
}

// foreground returns the process group in the foreground of a terminal, or 0.
func (t *terminal) foreground() int {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return 0
	}
	group := 0
	_ = raw.Control(func(fd uintptr) { // fails only if the file is closed
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil {
			group = n
		}
	})
	return group
}
