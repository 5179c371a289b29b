package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

const probeArg0 = "crannog-probe"

// probeTime bounds the probe: on a strange host a mount or a namespace can
// hang instead of failing.
const probeTime = 5 * time.Second

// Probe implements engine.Engine. It makes the namespaces that a box needs,
// mounts in them, and undoes it all by ending.
func (e *Engine) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{probeArg0, e.rootPoint()}
	cmd.Env = []string{}
	cmd.SysProcAttr = e.bootAttr()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if e.rootless {
		return fault.Wrap(fmt.Errorf("%w: %s", err, out), fault.Unsupported, "user_namespaces_unavailable",
			"this host does not let this user create user namespaces with mounts").WithHint(userNamespaceHint())
	}
	return fault.Wrap(err, fault.Unsupported, "namespaces_unavailable",
		fmt.Sprintf("this host does not let root create mount namespaces: %s", strings.TrimSpace(string(out)))).
		WithHint("in a container, run it privileged or with CAP_SYS_ADMIN and without a seccomp profile that denies mount and unshare")
}

func runProbe() {
	if err := probe(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func probe(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := bindReadOnly("/usr", dir); err != nil {
		return err
	}
	// gVisor keeps its kernel in a network namespace of its own.
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("empty network namespace: %w", err)
	}
	return nil
}

// userNamespaceHint names the switch that is off on this host.
func userNamespaceHint() string {
	switches := []struct{ path, bad, fix string }{
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
	}
	for _, s := range switches {
		data, err := os.ReadFile(s.path)
		if errors.Is(err, os.ErrNotExist) || err != nil {
			continue
		}
		if strings.TrimSpace(string(data)) == s.bad {
			return "as root: " + s.fix
		}
	}
	return "run as root, or allow user namespaces for this user; in a container, its seccomp profile must allow unshare and mount"
}
