package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/kernelevents"
	"github.com/crannog/crannog/internal/engine/linux/sysctl"
)

// probeTime bounds the probe: a mount or a namespace can hang instead of failing.
const probeTime = 5 * time.Second

// Probe implements engine.Engine.
func (e *Engine) Probe(ctx context.Context) []engine.Finding {
	list := []engine.Finding{
		e.checkUserNamespaces(), e.checkNamespaces(ctx), checkSeccomp(), checkLandlock(), e.checkGroups(), e.checkTap(),
	}
	if e.variant == nil {
		list = append(list, e.checkEvents())
	}
	return list
}

// checkUserNamespaces checks that the host's settings allow user namespaces.
func (e *Engine) checkUserNamespaces() engine.Finding {
	const name = "user namespaces"
	for _, d := range sysctl.Host.Denials(!e.rootless) {
		f := engine.Fail(name, d.Name+" denies them", d.Fix())
		f.Code = "user_namespaces_unavailable"
		return f
	}
	if e.rootless {
		return engine.Warn(name, "allowed, with one user ID: a sandbox has no root, and commands share their user ID with the guest", "run as root to give them separate IDs")
	}
	return engine.OK(name, "allowed, with separate IDs for each sandbox")
}

// checkNamespaces creates the namespaces and the mounts of a sandbox in a process, and removes them
// by ending it.
func (e *Engine) checkNamespaces(ctx context.Context) engine.Finding {
	const name = "namespaces"
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{setup.ProbeArg0}
	cmd.Env = []string{}
	cmd.SysProcAttr = e.attributes(record{Slot: ranges - 1})
	out, err := cmd.CombinedOutput()
	if err == nil {
		return engine.OK(name, "can be created, with overlays and a /proc in them")
	}
	f := engine.Fail(name, fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out)),
		"in a container, run it privileged, or without a seccomp profile that denies mount and unshare and with --security-opt systempaths=unconfined")
	f.Code = "namespaces_unavailable"
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		f.Code = "user_namespaces_unavailable"
	}
	return f
}

func checkSeccomp() engine.Finding {
	const name = "seccomp"
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return engine.Fail(name, "the kernel has no seccomp", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return engine.OK(name, "available")
}

func checkLandlock() engine.Finding {
	const name = "landlock"
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < 2 {
		return engine.Warn(name, "the kernel lacks Landlock version 2, which is one layer of the isolation", "use Linux 5.19 or later with landlock in CONFIG_LSM")
	}
	return engine.OK(name, "version "+strconv.Itoa(int(version)))
}

// checkGroups reports what New found when it created a control group, which is the only reliable
// test.
func (e *Engine) checkGroups() engine.Finding {
	const name = "cgroups"
	if e.groups == nil {
		return engine.Warn(name, fmt.Sprintf("%v: memory and CPU are not limited, and a sandbox cannot be paused in memory", e.noGroups),
			"run as root; or delegate a group with the controllers cpu and memory, and start crannog in it: systemd-run --user --scope -p Delegate=yes")
	}
	return engine.OK(name, e.groups.String())
}

// CheckInterface is the name of the check for network interfaces.
const CheckInterface = "network interface"

func (e *Engine) checkTap() engine.Finding {
	const name = CheckInterface
	if !e.tap {
		return engine.Warn(name, "no network interface can be created: sandboxes reach the network only through a proxy", "sudo modprobe tun, and chmod 0666 /dev/net/tun")
	}
	return engine.OK(name, "/dev/net/tun can be opened")
}

// checkEvents loads the programs that observe the kernel, which is the only reliable test, and
// removes them.
func (e *Engine) checkEvents() engine.Finding {
	const name = "record of programs"
	err := e.blind
	if err == nil {
		if _, err = kernelevents.Acquire(); err == nil {
			kernelevents.Release()
			return engine.OK(name, "programs and changed files can be recorded")
		}
	}
	return engine.Warn(name, fmt.Sprintf("programs and changed files are not recorded in the audit log: %v", err),
		"run as root on a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_SYSCALL, 5.8 or later")
}
