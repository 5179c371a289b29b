package setup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/host/reexec"
)

// ProbeArg0 is the argv[0] of a process that checks whether a jail can be created.
const ProbeArg0 = "crannog-jail-probe"

// ProbeRole is the role of that process. Each program that opens the engine must register it.
func ProbeRole() reexec.Role {
	return reexec.Role{Match: reexec.Arg0(ProbeArg0), Run: func() {
		if err := probe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}}
}

// probe makes the mounts of a jail.
func probe() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	b := &builder{r: &Request{Limits: engine.DefaultLimits, CPUs: 1}}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := b.makeBase(); err != nil {
		return err
	}
	// An overlay on the tmpfs that was just mounted.
	if err := os.Mkdir(b.base+"/source", 0o755); err != nil {
		return err
	}
	tree, err := openTree(b.base + "/source")
	if err != nil {
		return fmt.Errorf("copy a mount: %w", err)
	}
	if err := b.overlay(tree, b.root); err != nil {
		return err
	}
	if err := b.system(); err != nil {
		return err
	}
	return b.enter()
}
