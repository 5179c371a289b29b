package gvisor

import (
	"log/slog"
	"time"
)

// timeline records where the time of one boot went. The child's marks are taken in another process
// of the same machine, so all of them are wall clock.
type timeline struct {
	asked   time.Time // a kernel was asked for
	forked  time.Time // the child was asked for: record and group exist
	Began   time.Time // the child's main
	Rooted  time.Time // limits joined, root assembled, settings made
	Made    time.Time // gVisor's kernel and file server run
	heard   time.Time // the child's answer is here
	wanted  time.Time // a sandbox was to run in the kernel, which may have waited for it
	started time.Time // the network is up and the guest was asked to start
}

// log logs how long each part took, at level debug: this explains a slow boot, and the benchmark
// takes its figures from it.
func (t timeline) log(log *slog.Logger, id string) {
	ready := time.Now()
	log.Debug("box booted", "sandbox", id,
		"prepare", t.forked.Sub(t.asked),
		"child", t.Began.Sub(t.forked),
		"root", t.Rooted.Sub(t.Began),
		"kernel", t.Made.Sub(t.Rooted),
		"answer", t.heard.Sub(t.Made),
		"start", t.started.Sub(t.wanted),
		"guest", ready.Sub(t.started),
		"all", ready.Sub(t.asked))
}
