package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/process"
)

// killUntracked kills processes of this sandbox that no record names, because the server or the
// child that started them was killed before it could record them. They are recognised by their
// program name and by the name of the sandbox's kernel, which is their last argument. Only
// processes of our own user can be signalled. A booting child may start more processes during the
// search, so it is killed first, and the search is repeated until it finds nothing.
func (b *instance) killUntracked() error {
	for {
		processes, err := b.untrackedProcesses()
		if err != nil || len(processes) == 0 {
			return err
		}
		for _, p := range processes {
			if err := p.Kill(10 * time.Second); err != nil {
				return err
			}
		}
	}
}

// untrackedProcesses lists these processes, the booting child first.
func (b *instance) untrackedProcesses() ([]process.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list untracked processes: %w", err)
	}
	var booting, others []process.Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
			continue // the process has ended, or belongs to another user and is hidden
		}
		if err != nil {
			return nil, fmt.Errorf("list untracked processes: %w", err)
		}
		args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		isOurs := args[0] == bootArg0 || strings.HasPrefix(args[0], "runsc-")
		if !isOurs || args[len(args)-1] != b.rec.Kernel {
			continue
		}
		p, err := process.Identify(pid)
		if err == nil {
			err = p.Check()
		}
		switch {
		case errors.Is(err, process.ErrGone):
		case err != nil:
			return nil, fmt.Errorf("list untracked processes: %w", err)
		case args[0] == bootArg0:
			booting = append(booting, p)
		default:
			others = append(others, p)
		}
	}
	return append(booting, others...), nil
}
