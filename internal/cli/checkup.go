package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/store"
)

func ok(check, detail string) finding { return finding{check, resultOK, detail, ""} }

// minKernel is the oldest that gVisor's systrap platform supports.
var minKernel = [2]int{4, 14}

func checkKernel() finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return finding{"kernel", resultWarn, err.Error(), ""}
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return finding{"kernel", resultWarn, "cannot read the version " + release, ""}
	}
	if major < minKernel[0] || major == minKernel[0] && minor < minKernel[1] {
		return finding{"kernel", resultFail, "Linux " + release, fmt.Sprintf("use Linux %d.%d or later", minKernel[0], minKernel[1])}
	}
	return ok("kernel", "Linux "+release)
}

func checkUserNamespaces() finding {
	const name = "user namespaces"
	if os.Geteuid() == 0 {
		return ok(name, "not needed: we are root")
	}
	limit, err := readNumber("/proc/sys/user/max_user_namespaces")
	if err == nil && limit == 0 {
		return finding{name, resultFail, "switched off", "sudo sysctl user.max_user_namespaces=10000"}
	}
	if clone, err := readNumber("/proc/sys/kernel/unprivileged_userns_clone"); err == nil && clone == 0 {
		return finding{name, resultFail, "switched off for users", "sudo sysctl kernel.unprivileged_userns_clone=1"}
	}
	return ok(name, "allowed")
}

func checkAppArmor() finding {
	const name = "apparmor"
	restricted, err := readNumber("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	switch {
	case err != nil || restricted == 0:
		return ok(name, "does not restrict user namespaces")
	case os.Geteuid() == 0:
		return ok(name, "restricts users, and we are root")
	}
	return finding{name, resultFail, "restricts user namespaces",
		"sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for crannog with the rule userns"}
}

// checkCgroups makes what the engine makes, which is the only way to know: what
// may be written may still lack a controller, or be full of processes.
func checkCgroups() finding {
	const name = "cgroups"
	tree, err := cgroup.Detect()
	if err != nil {
		return finding{name, resultWarn, err.Error() + ": memory and CPU limits of the host cannot be set",
			"run as root; or have a group with the controllers cpu and memory delegated, and start crannog in it, as with: systemd-run --user --scope -p Delegate=yes"}
	}
	return ok(name, tree.String())
}

// checkTracing looks at what gVisor's systrap needs: ptrace and seccomp.
func checkTracing() finding {
	const name = "ptrace, seccomp"
	if scope, err := readNumber("/proc/sys/kernel/yama/ptrace_scope"); err == nil && scope >= 3 {
		return finding{name, resultFail, "ptrace is switched off for everybody", "sudo sysctl kernel.yama.ptrace_scope=1, which needs a reboot after 3"}
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return finding{name, resultFail, "the kernel has no seccomp", "use a kernel with CONFIG_SECCOMP_FILTER"}
	}
	return ok(name, "available")
}

const (
	littleMemory = 512 << 20
	littleDisk   = 1 << 30
)

func checkMemory() finding {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return finding{"memory", resultWarn, err.Error(), ""}
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "MemAvailable:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			break
		}
		if kib<<10 < littleMemory {
			return finding{"memory", resultWarn, bytesText(kib<<10) + " available", "free some, or run fewer sandboxes with --memory"}
		}
		return ok("memory", bytesText(kib<<10)+" available")
	}
	return finding{"memory", resultWarn, "/proc/meminfo does not say what is available", ""}
}

func checkState(dir string) finding {
	const name = "state directory"
	if err := store.CheckPrivate(dir); err != nil {
		return finding{name, resultFail, err.Error(), fault.HintOf(err)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return finding{name, resultFail, err.Error(), "choose another with --state or CRANNOG_STATE"}
	}
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return finding{name, resultFail, dir + " is not writable", "choose another with --state or CRANNOG_STATE"}
	}
	return ok(name, dir)
}

func checkDisk(dir string) finding {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return finding{"disk", resultWarn, err.Error(), ""}
	}
	free := int64(s.Bavail) * s.Bsize
	if free < littleDisk {
		return finding{"disk", resultWarn, bytesText(free) + " free at " + dir, "free some, or move the state with --state"}
	}
	return ok("disk", bytesText(free)+" free at "+dir)
}

func checkPort(ctx context.Context, c config.Config) finding {
	if answers(ctx, c.Socket()) {
		return ok("port", "a server runs on this state directory")
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return finding{"port", resultWarn, err.Error(), "choose another with --listen; crannog run needs none"}
	}
	if err := l.Close(); err != nil {
		return finding{"port", resultWarn, err.Error(), ""}
	}
	return ok("port", c.Listen+" is free")
}

// checkProxies tells of a proxy that hosts are to be reached by: who has one
// often has no other way out, and then sandboxes have none. Its address stays
// out of what is printed, because it may hold a password.
func (a *app) checkProxies() finding {
	const name = "proxy"
	var set []string
	for _, v := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		if a.variable(v) != "" {
			set = append(set, v)
		}
	}
	if len(set) == 0 {
		return ok(name, "no proxy variable is set")
	}
	return finding{name, resultWarn, strings.Join(set, ", ") + " set, and not used: the causeway reaches hosts directly",
		"let this machine look up and reach directly what sandboxes are to reach; without a network they need nothing"}
}

// checkClock catches a clock that was never set, with which every
// certificate is invalid and every sandbox ends at once.
func checkClock() finding {
	now := time.Now()
	if now.Year() < 2025 {
		return finding{"clock", resultWarn, now.Format(time.RFC3339), "set the clock"}
	}
	return ok("clock", now.UTC().Format(time.RFC3339))
}

// checkPrograms looks for what people expect inside; the host's /usr is what
// sandboxes see.
func checkPrograms() []finding {
	var findings []finding
	for _, name := range []string{"bash", "python3", "node", "git"} {
		path := ""
		for dir := range strings.SplitSeq(insidePath("", nil), ":") {
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				path = p
				break
			}
		}
		if path == "" {
			findings = append(findings, finding{name, resultWarn, "not in /usr or /bin, so sandboxes do not have it", "install it with the system's packages"})
			continue
		}
		findings = append(findings, ok(name, path))
	}
	return findings
}

func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
