package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	_ "unsafe" // for go:linkname
)

// programNice is the difference of the nice values of programs and of the kernel process that
// serves them. Both are in one control group. With this difference, a kernel that has to serve a
// system call, a request or a program start gets nine times the share of a computing program, and
// interrupts it. Without control groups, the difference also gives the server and all other
// processes of the host priority over programs.
const programNice = 10

// programPriority is the nice value of the host threads that programs run on. gVisor sets it on
// each thread, and its system call filter allows only that value, so it must be changed before the
// filter is created.
//
//go:linkname programPriority gvisor.dev/gvisor/pkg/sentry/platform/systrap.sysmsgThreadPriority
var programPriority int

// raiseProgramNice raises the nice value of programs, once. It is called after each creation of a
// platform. The first sets programPriority to one more than the nice value of the process.
func raiseProgramNice() {
	raiseNiceOnce.Do(func() { programPriority = min(programPriority-1+programNice, maxNice) })
}

var raiseNiceOnce sync.Once

// maxNice is the kernel's largest nice value.
const maxNice = 19

// lowerPriority gives the programs of a sandbox without a control group a lower priority than
// processes with the default nice value. If the host's kernel groups processes by session
// (autogroup), a nice value counts only within a session, and each session has a nice value too.
// The programs of a sandbox are one session and its kernel is another. Errors are only logged,
// because the kernel limits how often users other than root may change the value.
func (b *instance) lowerPriority() {
	for _, pid := range b.processes() {
		if pid == b.rec.Sentry.PID || pid == b.rec.Gofer.PID {
			continue
		}
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(programNice)), 0)
		if err != nil {
			b.e.log.Debug("set the priority of a sandbox's programs", "sandbox", b.rec.ID, "err", err)
		}
		return // all other programs are in the same session
	}
}
