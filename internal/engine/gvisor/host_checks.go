package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// minKernel is the oldest Linux that gVisor's systrap platform supports.
var minKernel = [2]int{4, 14}

// checkKernel checks the version of the host's kernel.
func checkKernel() engine.Finding {
	const name = "kernel"
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return engine.Warn(name, err.Error(), "")
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return engine.Warn(name, "cannot read the version "+release, "")
	}
	if major < minKernel[0] || major == minKernel[0] && minor < minKernel[1] {
		return engine.Fail(name, "Linux "+release, fmt.Sprintf("use Linux %d.%d or later", minKernel[0], minKernel[1]))
	}
	return engine.OK(name, "Linux "+release)
}

// checkUserNamespaces checks whether this user may create user namespaces.
func (e *Engine) checkUserNamespaces() engine.Finding {
	const name = "user namespaces"
	if !e.rootless {
		return engine.OK(name, "not needed: this process runs as root")
	}
	f := engine.Fail(name, "switched off", "sudo sysctl user.max_user_namespaces=10000")
	f.Code = "user_namespaces_unavailable"
	if limit, err := readNumber("/proc/sys/user/max_user_namespaces"); err == nil && limit == 0 {
		return f
	}
	if clone, err := readNumber("/proc/sys/kernel/unprivileged_userns_clone"); err == nil && clone == 0 {
		f.Detail, f.Fix = "switched off for users", "sudo sysctl kernel.unprivileged_userns_clone=1"
		return f
	}
	return engine.OK(name, "allowed")
}

// checkAppArmor checks whether AppArmor restricts user namespaces.
func (e *Engine) checkAppArmor() engine.Finding {
	const name = "apparmor"
	restricted, err := readNumber("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	switch {
	case err != nil || restricted == 0:
		return engine.OK(name, "does not restrict user namespaces")
	case !e.rootless:
		return engine.OK(name, "restricts users, and this process runs as root")
	}
	f := engine.Fail(name, "restricts user namespaces",
		"sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for crannog with the rule userns")
	f.Code = "user_namespaces_unavailable"
	return f
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

// checkTracing checks the features that gVisor's systrap platform needs: ptrace and seccomp.
func checkTracing() engine.Finding {
	const name = "ptrace, seccomp"
	if scope, err := readNumber("/proc/sys/kernel/yama/ptrace_scope"); err == nil && scope >= 3 {
		return engine.Fail(name, "ptrace is disabled for all users", "sudo sysctl kernel.yama.ptrace_scope=1; if the value is 3, only a reboot can change it")
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return engine.Fail(name, "the kernel has no seccomp", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return engine.OK(name, "available")
}

// readNumber reads a file that contains one number.
func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
