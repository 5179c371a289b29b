// Package watch owns the events that a sandbox's kernel records about the programs in it. It runs
// in gVisor's kernel process, attaches to gVisor's trace points and system calls, and appends lines
// of package events to a file that it received. Programs in the sandbox have no access to it, so
// they cannot forge events.
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

// sinkName is the name of the watcher in gVisor.
const sinkName = "crannog"

// Start describes the beginning of a session.
type Start struct {
	Next     uint64 // number of the first event
	Bytes    int64  // maximum size of the file
	Restored bool   // the kernel continues programs that were saved elsewhere
	Torn     bool   // the file ends with an incomplete line
}

// Names of the settings of a session.
const (
	settingNext     = "next"
	settingBytes    = "bytes"
	settingRestored = "restored"
	settingTorn     = "torn"
)

// Session returns the request that makes a kernel write to the file that is sent with it.
func Session(s Start) seccheck.SessionConfig {
	return seccheck.SessionConfig{
		Name: seccheck.DefaultSessionName,
		// The session names no trace points, because the watcher enables its own. The table of
		// their names stays empty. JSON represents integers up to 2^53 exactly.
		Sinks: []seccheck.SinkConfig{{Name: sinkName, Config: map[string]any{
			settingNext: float64(s.Next), settingBytes: float64(s.Bytes), settingRestored: s.Restored, settingTorn: s.Torn,
		}}},
	}
}

// Install prepares a starting kernel for watching. It costs nothing until there is a session.
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

	kernel  atomic.Pointer[sentry.Kernel] // the kernel of the first task
	fresh   bool                          // nothing ran before the session
	joined  sync.Once                     // guards the registration of what already runs
	started atomic.Bool                   // the registration is done, or was not necessary

	files  *files
	limits limitTimes
	// surveying is locked by the running survey.
	surveying sync.Mutex
	queued    atomic.Bool // another survey will run
}

var _ seccheck.Sink = (*watcher)(nil)

// begin creates the session's sink in the kernel.
func begin(config map[string]any, file *fd.FD) (seccheck.Sink, error) {
	next, ok1 := config[settingNext].(float64)
	bytes, ok2 := config[settingBytes].(float64)
	restored, ok3 := config[settingRestored].(bool)
	torn, ok4 := config[settingTorn].(bool)
	if !ok1 || !ok2 || !ok3 || !ok4 || next < 1 || bytes < 1 || file == nil {
		return nil, fmt.Errorf("a session needs a file, a number and a size limit: %v", config)
	}
	out, err := events.NewWriter(file.FD(), uint64(next), int64(bytes), torn)
	if err != nil {
		return nil, err
	}
	w := &watcher{file: file, out: out, fresh: !restored, kin: new(family), files: new(files)}
	w.started.Store(!restored)
	if before := latest.Swap(w); before != nil {
		// The same kernel continues under other numbers, and its state is preserved.
		w.fresh, w.kin, w.files = before.fresh, before.kin, before.files
		w.kernel.Store(before.kernel.Load())
		w.started.Store(before.started.Load())
	}
	if err := out.Write(&events.Event{Kind: events.Began}, true); err != nil {
		return nil, err
	}
	current.Store(w)
	// Points belong to the whole kernel: if one sink enables a point, all sinks receive it. gVisor
	// itself adds the watcher.
	seccheck.Global.AppendSink(pointEnabler{}, points)
	return w, nil
}

// pointEnabler is a sink that only enables points.
type pointEnabler struct{ seccheck.SinkDefaults }

// Name implements seccheck.Sink.
func (pointEnabler) Name() string { return sinkName + "-points" }

// Name implements seccheck.Sink.
func (w *watcher) Name() string { return sinkName }

// Status implements seccheck.Sink. A caller requests it to be sure that all events are written, so
// it checks the files first. The dropped count is the number of changes that could not be recorded.
func (w *watcher) Status() seccheck.SinkStatus {
	return seccheck.SinkStatus{DroppedCount: w.checkFilesNow()}
}

// Stop implements seccheck.Sink. Another session replaces this one.
func (w *watcher) Stop() {
	current.CompareAndSwap(w, nil)
	w.surveying.Lock()
	defer w.surveying.Unlock()
	_ = w.file.Close()
}

// Unsaved is the answer of a survey that could not run because the kernel is paused.
const Unsaved = 1<<63 - 1

// Pending returns the number of files in a kernel's answer whose changes are not recorded.
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
