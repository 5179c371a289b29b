package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	_ "unsafe" // for go:linkname
)

// programNice is the difference of the nice values of programs and of the kernel process that
// serves them. Both are in one control group, so its weight is the same. With this difference, a
// kernel that has to serve a system call, a request or a program start gets nine times the share of
// a computing program, and interrupts it. Without control groups, it also gives the server and
// everything else on the host priority over programs.
const programNice = 10

// programPriority is the nice value of the host threads that programs run on. gVisor sets it on
// each thread, and its system call filter allows only that value, so it must be changed before the
// filter is created.
//
//go:linkname programPriority gvisor.dev/gvisor/pkg/sentry/platform/systrap.sysmsgThreadPriority
var programPriority int

// setProgramsBehind increases the nice value of programs. It is called after the platform is
// created, which sets the value to one more than the process's own. It is repeated for the platform
// of a state that the same process restores.
func setProgramsBehind() {
	behindOnce.Do(func() { programPriority = min(programPriority-1+programNice, maxNice) })
}

var behindOnce sync.Once

// maxNice is the kernel's largest nice value.
const maxNice = 19

// setBehind gives a sandbox without a control group a lower priority than all processes that are
// not nice. If the host's kernel groups processes by session, a nice value counts only within a
// session, and sessions have a nice value of their own. The programs of a sandbox are one session
// and its kernel is another. This is done as far as the user may: the kernel limits how often users
// other than root change the value.
func (b *instance) setBehind() {
	for _, pid := range b.processes() {
		if pid == b.rec.Sentry.PID || pid == b.rec.Gofer.PID {
			continue
		}
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(programNice)), 0)
		if err != nil {
			b.e.log.Debug("set the priority of a sandbox's programs", "sandbox", b.rec.ID, "err", err)
		}
		return // all others have its session
	}
}
