package gvisor

import (
	"log/slog"
	"time"
)

// timeline records when each step of one boot ended. Some times come from the child, which is
// another process, so all of them are wall clock times.
type timeline struct {
	asked    time.Time // a kernel was requested
	forked   time.Time // the child was requested: record and group exist
	Began    time.Time // the child's main began
	Rooted   time.Time // the root is assembled and the settings are prepared
	Made     time.Time // gVisor's kernel and file server run
	answered time.Time // the child's answer has arrived
	wanted   time.Time // a start of a sandbox in the kernel was requested
	started  time.Time // the network is up and the guest's start was requested
}

// log logs at level debug how long each step took. The benchmark reads its figures from this
// message.
func (t timeline) log(log *slog.Logger, id string) {
	ready := time.Now()
	log.Debug("sandbox booted", "sandbox", id,
		"prepare", t.forked.Sub(t.asked),
		"child", t.Began.Sub(t.forked),
		"root", t.Rooted.Sub(t.Began),
		"kernel", t.Made.Sub(t.Rooted),
		"answer", t.answered.Sub(t.Made),
		"start", t.started.Sub(t.wanted),
		"guest", ready.Sub(t.started),
		"all", ready.Sub(t.asked))
}
