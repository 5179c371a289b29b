package gvisor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sysctl"
)

// minKernel is the oldest Linux that gVisor's systrap platform supports.
var minKernel = [2]int{4, 14}

// checkKernel checks the version of the host's kernel.
func checkKernel() engine.Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return engine.Warn("kernel", err.Error(), "")
	}
	return checkRelease(unix.ByteSliceToString(u.Release[:]))
}

// checkRelease checks a version as uname reports it.
func checkRelease(release string) engine.Finding {
	const name = "kernel"
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return engine.Warn(name, "cannot read the version "+release, "")
	}
	if major < minKernel[0] || major == minKernel[0] && minor < minKernel[1] {
		return engine.Fail(name, "Linux "+release, fmt.Sprintf("use Linux %d.%d or later", minKernel[0], minKernel[1]))
	}
	return engine.OK(name, "Linux "+release)
}

// sysctls are the settings of the host's kernel.
type sysctls struct{ sysctl.Dir }

// hostSysctls has those of the host's kernel.
var hostSysctls = sysctls{sysctl.Host}

// denied returns the finding that a setting denies user namespaces, if one of them does.
func (s sysctls) denied(check string, appArmor bool) (f engine.Finding, denied bool) {
	for _, d := range s.Denials(false) {
		if (d.Name == sysctl.AppArmorRestrictions) == appArmor {
			f = engine.Fail(check, d.Name+" denies user namespaces", d.Fix())
			f.Code = "user_namespaces_unavailable"
			return f, true
		}
	}
	return f, false
}

// checkUserNamespaces checks whether this user may create user namespaces.
func (s sysctls) checkUserNamespaces(rootless bool) engine.Finding {
	const name = "user namespaces"
	if !rootless {
		return engine.OK(name, "not needed: this process runs as root")
	}
	if f, denied := s.denied(name, false); denied {
		return f
	}
	return engine.OK(name, "allowed")
}

// checkAppArmor checks whether AppArmor restricts user namespaces.
func (s sysctls) checkAppArmor(rootless bool) engine.Finding {
	const name = "apparmor"
	f, denied := s.denied(name, true)
	switch {
	case !denied:
		return engine.OK(name, "does not restrict user namespaces")
	case !rootless:
		return engine.OK(name, "restricts users, and this process runs as root")
	}
	return f
}

// userNamespaceHint names the setting that disables user namespaces.
func (s sysctls) userNamespaceHint() string {
	if list := s.Denials(false); len(list) > 0 {
		d := list[len(list)-1]
		return "as root: sysctl -w " + d.Name + "=" + d.Allows
	}
	return "run as root, or allow user namespaces for this user; in a container, its seccomp profile must allow unshare and mount"
}

// checkTracing checks the features that gVisor's systrap platform needs: ptrace and seccomp.
func (s sysctls) checkTracing() engine.Finding {
	const name = "ptrace, seccomp"
	if s.Is(sysctl.PtraceScope, func(scope int64) bool { return scope >= 3 }) {
		return engine.Fail(name, "ptrace is disabled for all users", "sudo sysctl "+sysctl.PtraceScope+"=1; if the value is 3, only a reboot can change it")
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return engine.Fail(name, "the kernel has no seccomp", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return engine.OK(name, "available")
}

// checkGroups reports whether New could create a control group. Only creating one is a reliable
// test: a writable group may still lack a controller or contain processes.
func (e *Engine) checkGroups() engine.Finding {
	const name = "cgroups"
	if e.groups == nil {
		return engine.Warn(name, fmt.Sprintf("%v: the host cannot limit memory and CPU", e.noGroups),
			"run as root; or let a group with the controllers cpu and memory be delegated, and start crannog in it: systemd-run --user --scope -p Delegate=yes")
	}
	return engine.OK(name, e.groups.String())
}
