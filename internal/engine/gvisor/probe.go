package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// probeArg0 is the argv[0] of the process that runs probe.
const probeArg0 = "crannog-probe"

// probeTime bounds the probe, because creating a mount or a namespace can hang instead of failing.
const probeTime = 5 * time.Second

// Probe implements engine.Engine.
func (e *Engine) Probe(ctx context.Context) []engine.Finding {
	return []engine.Finding{
		checkKernel(), hostSysctls.checkUserNamespaces(e.rootless), hostSysctls.checkAppArmor(e.rootless), e.checkGroups(),
		hostSysctls.checkTracing(), e.checkNamespaces(ctx),
	}
}

// checkNamespaces creates the namespaces of a sandbox in a process, mounts in them, and removes
// everything by ending the process.
func (e *Engine) checkNamespaces(ctx context.Context) engine.Finding {
	const name = "namespaces"
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{probeArg0, e.rootPoint()}
	cmd.Env = []string{}
	cmd.SysProcAttr = e.bootAttr()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return engine.OK(name, "can be created, with mounts in them")
	}
	reason := fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
	if e.rootless {
		f := engine.Fail(name, "on this host, this user cannot create user namespaces with mounts: "+reason, hostSysctls.userNamespaceHint())
		f.Code = "user_namespaces_unavailable"
		return f
	}
	f := engine.Fail(name, "on this host, root cannot create mount namespaces: "+reason,
		"in a container, run it privileged or with CAP_SYS_ADMIN and without a seccomp profile that denies mount and unshare")
	f.Code = "namespaces_unavailable"
	return f
}

// runProbe is the main function of that process.
func runProbe() {
	if err := probe(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// probe mounts a directory and creates the namespaces of a sandbox.
func probe(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := bindReadOnly("/usr", dir); err != nil {
		return err
	}
	// gVisor runs its kernel in a separate network namespace.
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("empty network namespace: %w", err)
	}
	return nil
}
