// Package watch owns the events that the kernel of a sandbox records of the programs in it: it runs
// in gVisor's kernel process, attaches to gVisor's trace points and system calls, and adds lines of
// package events to a file that it was handed. No program inside takes part in that, so none can
// forge it.
package watch

import (
	"fmt"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/fd"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"

	"github.com/crannog/crannog/internal/audit/events"
)

// sinkName is what gVisor calls us.
const sinkName = "crannog"

// Start describes how a session begins.
type Start struct {
	Next     uint64 // number of its first event
	Bytes    int64  // how large the file may become
	Restored bool   // programs continue in this kernel that began elsewhere
	Torn     bool   // the file ends within a line
}

// Names of the settings of a session.
const (
	settingNext     = "next"
	settingBytes    = "bytes"
	settingRestored = "restored"
	settingTorn     = "torn"
)

// Session is the request that makes a kernel write to the file that comes with it.
func Session(s Start) seccheck.SessionConfig {
	return seccheck.SessionConfig{
		Name: seccheck.DefaultSessionName,
		// Without points: the watcher takes its own, and the table by which they
		// have names stays empty. Numbers of JSON are exact up to 2^53.
		Sinks: []seccheck.SinkConfig{{Name: sinkName, Config: map[string]any{
			settingNext: float64(s.Next), settingBytes: float64(s.Bytes), settingRestored: s.Restored, settingTorn: s.Torn,
		}}},
	}
}

// Install makes a kernel that starts able to watch. It costs nothing until
// there is a session.
func Install(tables ...*sentry.SyscallTable) {
	seccheck.RegisterSink(seccheck.SinkDesc{Name: sinkName, New: begin})
	for _, table := range tables {
		wrap(table)
	}
}

// current is the active watcher, or nil. latest is the active or the last one.
var current, latest atomic.Pointer[watcher]

// watcher is one session.
type watcher struct {
	seccheck.SinkDefaults
	file *fd.FD
	out  *events.Writer
	kin  *family

	kernel atomic.Pointer[sentry.Kernel] // the kernel of the first task that was seen
	fresh  bool                          // nothing ran before the session
	joined sync.Once                     // what runs already is looked at
	begun  atomic.Bool                   // it was, or there was nothing

	files  *files
	limits met
	// looking is held by the one survey that runs.
	looking sync.Mutex
	queued  atomic.Bool // another one will run
}

var _ seccheck.Sink = (*watcher)(nil)

// begin makes the session's sink in the kernel.
func begin(config map[string]any, file *fd.FD) (seccheck.Sink, error) {
	next, ok1 := config[settingNext].(float64)
	bytes, ok2 := config[settingBytes].(float64)
	restored, ok3 := config[settingRestored].(bool)
	torn, ok4 := config[settingTorn].(bool)
	if !ok1 || !ok2 || !ok3 || !ok4 || next < 1 || bytes < 1 || file == nil {
		return nil, fmt.Errorf("a session needs a file, a number and a bound: %v", config)
	}
	out, err := events.NewWriter(file.FD(), uint64(next), int64(bytes), torn)
	if err != nil {
		return nil, err
	}
	w := &watcher{file: file, out: out, fresh: !restored, kin: new(family), files: new(files)}
	w.begun.Store(!restored)
	if before := latest.Swap(w); before != nil {
		// The same kernel continues under other numbers: nothing is forgotten.
		w.fresh, w.kin, w.files = before.fresh, before.kin, before.files
		w.kernel.Store(before.kernel.Load())
		w.begun.Store(before.begun.Load())
	}
	if err := out.Write(&events.Event{Kind: events.Began}, true); err != nil {
		return nil, err
	}
	current.Store(w)
	// Points belong to the whole kernel: if one sink asks for a point, all sinks get
	// it. gVisor itself adds the watcher.
	seccheck.Global.AppendSink(asking{}, points)
	return w, nil
}

// asking only switches points on.
type asking struct{ seccheck.SinkDefaults }

// Name implements seccheck.Sink.
func (asking) Name() string { return sinkName + "-points" }

// Name implements seccheck.Sink.
func (w *watcher) Name() string { return sinkName }

// Status implements seccheck.Sink. A caller asks for it to know that all events are
// written, so it writes them. The count of dropped events is of those that could not
// be written.
func (w *watcher) Status() seccheck.SinkStatus {
	return seccheck.SinkStatus{DroppedCount: w.surveyNow()}
}

// Stop implements seccheck.Sink: another session takes over.
func (w *watcher) Stop() {
	current.CompareAndSwap(w, nil)
	w.looking.Lock()
	defer w.looking.Unlock()
	_ = w.file.Close()
}

// Unsaved is the answer of a survey that could not look because the kernel stands still.
const Unsaved = 1<<63 - 1

// Pending returns from a kernel's answer how many files are not written down.
func Pending(sessions []seccheck.SessionConfig) (n uint64, watched bool) {
	for _, s := range sessions {
		for _, sink := range s.Sinks {
			if sink.Name == sinkName {
				n, watched = n+sink.Status.DroppedCount, true
			}
		}
	}
	return n, watched
}
