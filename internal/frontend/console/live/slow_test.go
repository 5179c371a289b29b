package live_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/console/live"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestSlowPageDoesNotDelayOthers checks that a page that does not read delays no other page. When
// it reads again, it gets the missed entries from the audit log.
func TestSlowPageDoesNotDelayOthers(t *testing.T) {
	r := newRig(t)
	slow, fast := r.open("topics=record:aaa", ""), r.open("topics=record:aaa", "")
	// The entries are few and long. The slow page is disconnected if all this takes half a minute.
	const n, each = 2000, 100
	text := strings.Repeat("x", 7000) // more in all than any socket holds
	for from := 0; from < n; from += each {
		var drafts []audit.Draft
		for range each {
			drafts = append(drafts, audit.Draft{Kind: audit.Exec, Sandbox: "aaa", Data: text})
		}
		if err := r.log.Append(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		for want := from; want < from+each; want++ {
			if e := fast.next(); e.id != strconv.Itoa(want) {
				t.Fatalf("the fast page got entry %s, want %d", e.id, want)
			}
		}
	}
	for want := range n {
		if e := slow.next(); e.id != strconv.Itoa(want) {
			t.Fatalf("the slow page got entry %s, want %d", e.id, want)
		}
	}
}

// flaky is an audit log that cannot be followed at first.
type flaky struct {
	*audit.Log
	fails atomic.Int64
}

func (f *flaky) Read(ctx context.Context, filter audit.Filter, follow bool, yield func(audit.Entry) error) error {
	if follow && f.fails.Add(-1) >= 0 {
		return errors.New("broken on purpose")
	}
	return f.Log.Read(ctx, filter, follow, yield)
}

// TestUnreadableLogIsReported checks that a page is notified when the audit log cannot be read, and
// later gets the missed entries.
func TestUnreadableLogIsReported(t *testing.T) {
	log := &flaky{Log: openRecord(t, filepath.Join(t.TempDir(), "record"))}
	log.fails.Store(1)
	r := newRigOn(t, log.Log, &sandboxes{}, func(d *live.Deps) { d.Audit = log })
	p := r.open("topics=record", "")
	r.note(audit.Draft{Kind: audit.ServerStarted})
	e := p.next()
	if e.name == "gap" { // none if the read failed before the page connected
		e = p.next()
	}
	if e.name != "entry" || e.id != "0" {
		t.Errorf("event of an entry: got %+v", e)
	}
	if log.fails.Load() >= 0 {
		t.Error("the audit log was never read, so the test proves nothing")
	}
}

// unreadableLog is an audit log that cannot be read until it is opened.
type unreadableLog struct {
	*audit.Log
	open  atomic.Bool
	tried chan struct{}
}

func (s *unreadableLog) Read(ctx context.Context, filter audit.Filter, follow bool, yield func(audit.Entry) error) error {
	if !s.open.Load() {
		select {
		case s.tried <- struct{}{}:
		default:
		}
		return errors.New("broken on purpose")
	}
	return s.Log.Read(ctx, filter, follow, yield)
}

// TestUnknownEndOfLogRepeatsNothing checks that, while the end of the audit log is unknown, no page
// is informed that the log is another one. When the log can be read, no page gets old entries
// again.
func TestUnknownEndOfLogRepeatsNothing(t *testing.T) {
	log := &unreadableLog{Log: openRecord(t, filepath.Join(t.TempDir(), "record")), tried: make(chan struct{}, 1)}
	r := newRigOn(t, log.Log, &sandboxes{}, func(d *live.Deps) { d.Audit = log })
	for range 4 {
		r.note(audit.Draft{Kind: audit.ServerStarted})
	}
	newPage, returningPage := r.open("topics=record", ""), r.open("topics=record", "1")
	if newPage.lastID != "" || returningPage.lastID != "1" {
		t.Errorf("the streams start after %q and %q, want none and 1", newPage.lastID, returningPage.lastID)
	}
	<-log.tried
	log.open.Store(true)
	for _, want := range []string{"2", "3", "4"} {
		if want == "4" {
			r.note(audit.Draft{Kind: audit.ServerStopped})
		}
		e := returningPage.next()
		for e.name == "gap" && strings.Contains(e.data, "cannot be read now") {
			e = returningPage.next()
		}
		if e.name != "entry" || e.id != want {
			t.Fatalf("%+v, want %s", e, want)
		}
	}
	e := newPage.next()
	for e.name == "gap" && strings.Contains(e.data, "cannot be read now") {
		e = newPage.next()
	}
	if e.name != "entry" || e.id != "4" {
		t.Errorf("event of an entry: got %+v", e)
	}
}

// TestClosedStreamsLeakNoGoroutines has pages connect and disconnect concurrently.
func TestClosedStreamsLeakNoGoroutines(t *testing.T) {
	r := newRig(t)
	r.sandboxes.put(fakeSandbox("aaa"))
	r.note(audit.Draft{Kind: audit.ServerStarted})
	r.open("topics=fleet", "").close()
	r.srv.Client().CloseIdleConnections()
	before := steadyGoroutines(t)
	var pages sync.WaitGroup
	for i := range 8 {
		pages.Go(func() {
			for range 6 {
				p := r.subscribe("page"+strconv.Itoa(i), "topics=fleet,approvals,record&watch=aaa", "")
				p.until("fleet", anyData)
				p.close()
			}
		})
	}
	pages.Wait()
	r.srv.Client().CloseIdleConnections()
	hosttest.EventuallyAtMost(t, "goroutines", before, runtime.NumGoroutine)
}

// steadyGoroutines returns the number of goroutines when it has not fallen for a second.
func steadyGoroutines(t *testing.T) int {
	t.Helper()
	last, since := runtime.NumGoroutine(), time.Now()
	hosttest.Eventually(t, "no more goroutines end", func() bool {
		if n := runtime.NumGoroutine(); n < last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	return last
}
