package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	_ "unsafe" // for go:linkname
)

// programNice is how much nicer the programs inside a sandbox are than the kernel
// process that serves them. Both are in one control group, so its weight is the
// same. With this, a kernel that has a system call, a request or a start of a
// program to serve gets nine times the share of a program that only computes,
// and interrupts it. Without control groups it also keeps programs behind the
// server and everything else on the host.
const programNice = 10

// programPriority is the nice value of the host threads that programs run on.
// gVisor sets it on each, and its filter for system calls allows that one value
// only, so it must be set before the filter is made.
//
//go:linkname programPriority gvisor.dev/gvisor/pkg/sentry/platform/systrap.sysmsgThreadPriority
var programPriority int

// setProgramsBehind makes programs nicer than gVisor does. It comes after the platform is made,
// which sets the value to one more than the process's own. It is repeated for the platform of a
// state that the same process takes over.
func setProgramsBehind() {
	behindOnce.Do(func() { programPriority = min(programPriority-1+programNice, mostNice) })
}

var behindOnce sync.Once

// mostNice is the kernel's largest nice value.
const mostNice = 19

// setBehind keeps a sandbox without a control group behind all that is not nice.
// Where the host's kernel groups processes by sessions, a nice value counts only
// within one, and a session has its own. The programs of a sandbox are one session
// and its kernel another. It is done as far as this user may: the kernel limits
// how often users other than root change it.
func (b *instance) setBehind() {
	for _, pid := range b.processes() {
		if pid == b.rec.Sentry.PID || pid == b.rec.Gofer.PID {
			continue
		}
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(programNice)), 0)
		if err != nil {
			b.e.log.Debug("session of a sandbox's programs", "sandbox", b.rec.ID, "err", err)
		}
		return // all others have its session
	}
}
