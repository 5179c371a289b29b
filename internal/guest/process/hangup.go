package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hangUp does what the end of an SSH connection does. A program on a terminal, and the one in the
// terminal's foreground, get SIGHUP. Any other program reads the end of its input and cannot write
// any more; it continues if it does neither, so that a server that was started with redirected
// output outlives its connection.
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
	if p.output.snapshot() != nil {
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
	_ = raw.Control(func(fd uintptr) { // fails on a file that is closed
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil {
			group = n
		}
	})
	return group
}
