package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
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

// sysctls is a directory with the settings of a kernel, one file for each.
type sysctls string

// hostSysctls has those of the host's kernel.
const hostSysctls sysctls = "/proc/sys"

// The settings that can prevent sandboxes.
const (
	maxUserNamespaces    = "user.max_user_namespaces"
	userNamespacesClone  = "kernel.unprivileged_userns_clone"
	appArmorRestrictions = "kernel.apparmor_restrict_unprivileged_userns"
	ptraceScope          = "kernel.yama.ptrace_scope"
)

// is reports whether a setting exists and has one of the values.
func (s sysctls) is(name string, bad func(int64) bool) bool {
	data, err := os.ReadFile(filepath.Join(string(s), strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return false // this kernel does not have the setting
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return err == nil && bad(value)
}

func zero(value int64) bool    { return value == 0 }
func nonZero(value int64) bool { return value != 0 }

// checkUserNamespaces checks whether this user may create user namespaces.
func (s sysctls) checkUserNamespaces(rootless bool) engine.Finding {
	const name = "user namespaces"
	f := engine.Fail(name, "switched off", "sudo sysctl "+maxUserNamespaces+"=10000")
	f.Code = "user_namespaces_unavailable"
	switch {
	case !rootless:
		return engine.OK(name, "not needed: this process runs as root")
	case s.is(maxUserNamespaces, zero):
		return f
	case s.is(userNamespacesClone, zero):
		f.Detail, f.Fix = "switched off for users", "sudo sysctl "+userNamespacesClone+"=1"
		return f
	}
	return engine.OK(name, "allowed")
}

// checkAppArmor checks whether AppArmor restricts user namespaces.
func (s sysctls) checkAppArmor(rootless bool) engine.Finding {
	const name = "apparmor"
	switch {
	case !s.is(appArmorRestrictions, nonZero):
		return engine.OK(name, "does not restrict user namespaces")
	case !rootless:
		return engine.OK(name, "restricts users, and this process runs as root")
	}
	f := engine.Fail(name, "restricts user namespaces",
		"sudo sysctl "+appArmorRestrictions+"=0, or an AppArmor profile for crannog with the rule userns")
	f.Code = "user_namespaces_unavailable"
	return f
}

// userNamespaceHint names the setting that disables user namespaces.
func (s sysctls) userNamespaceHint() string {
	for _, setting := range []struct {
		name string
		bad  func(int64) bool
		good string
	}{{appArmorRestrictions, nonZero, "0"}, {userNamespacesClone, zero, "1"}, {maxUserNamespaces, zero, "15000"}} {
		if s.is(setting.name, setting.bad) {
			return "as root: sysctl -w " + setting.name + "=" + setting.good
		}
	}
	return "run as root, or allow user namespaces for this user; in a container, its seccomp profile must allow unshare and mount"
}

// checkTracing checks the features that gVisor's systrap platform needs: ptrace and seccomp.
func (s sysctls) checkTracing() engine.Finding {
	const name = "ptrace, seccomp"
	if s.is(ptraceScope, func(scope int64) bool { return scope >= 3 }) {
		return engine.Fail(name, "ptrace is disabled for all users", "sudo sysctl "+ptraceScope+"=1; if the value is 3, only a reboot can change it")
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
