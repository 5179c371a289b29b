package cli

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/meminfo"
	"github.com/crannog/crannog/internal/store"
)

func ok(check, detail string) finding { return finding{check, resultOK, detail, ""} }

const (
	littleMemory = 512 << 20
	littleDisk   = 1 << 30
)

func checkMemory() finding {
	available, err := meminfo.Available()
	if err != nil {
		return finding{"memory", resultWarn, err.Error(), ""}
	}
	if available < littleMemory {
		return finding{"memory", resultWarn, bytesText(available) + " available", "free memory, or run fewer sandboxes with --memory"}
	}
	return ok("memory", bytesText(available)+" available")
}

func checkState(dir string) finding {
	const name = "state directory"
	if err := store.CheckPrivate(dir); err != nil {
		return finding{name, resultFail, err.Error(), fault.HintOf(err)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return finding{name, resultFail, err.Error(), "choose another directory with --state or CRANNOG_STATE"}
	}
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return finding{name, resultFail, dir + " is not writable", "choose another directory with --state or CRANNOG_STATE"}
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
		return finding{"disk", resultWarn, bytesText(free) + " free at " + dir, "free disk space, or move the state with --state"}
	}
	return ok("disk", bytesText(free)+" free at "+dir)
}

func checkPort(ctx context.Context, c config.Config) finding {
	if answers(ctx, c.Socket()) {
		return ok("port", "a server runs on this state directory")
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.HTTP.Listen)
	if err != nil {
		return finding{"port", resultWarn, err.Error(), "choose another with --listen; crannog run needs none"}
	}
	if err := l.Close(); err != nil {
		return finding{"port", resultWarn, err.Error(), ""}
	}
	return ok("port", c.HTTP.Listen+" is free")
}

// checkProxies warns about an HTTP proxy in the environment. A host with a proxy often has no other
// connection to the internet, and sandboxes do not use the proxy. Its address is not printed,
// because it may contain a password.
func (a doctorVerbs) checkProxies() finding {
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
	return finding{name, resultWarn, strings.Join(set, ", ") + " set, and not used: the egress gateway connects to hosts directly",
		"allow direct DNS and connections from this machine to the hosts that sandboxes use; sandboxes without a network need none"}
}

// checkClock detects a clock that was never set, with which every certificate would be invalid and
// every sandbox would expire at once.
func checkClock() finding {
	now := time.Now()
	if now.Year() < 2025 {
		return finding{"clock", resultWarn, now.Format(time.RFC3339), "set the clock"}
	}
	return ok("clock", now.UTC().Format(time.RFC3339))
}

// checkPrograms looks for common programs, because sandboxes use the host's /usr.
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
