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

// A page that does not read does not delay others, and the server buffers nothing for it: when it
// reads again, it gets the missed entries from the audit log.
func TestSlowReader(t *testing.T) {
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
				t.Fatalf("the fast one got %s for %d", e.id, want)
			}
		}
	}
	for want := range n {
		if e := slow.next(); e.id != strconv.Itoa(want) {
			t.Fatalf("the slow one got %s for %d", e.id, want)
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

// A page is notified when the audit log cannot be read, and gets the missed entries when it can.
func TestRecordThatFails(t *testing.T) {
	log := &flaky{Log: openRecord(t, filepath.Join(t.TempDir(), "record"))}
	log.fails.Store(1)
	r := newRigOn(t, log.Log, &boxes{}, func(d *live.Deps) { d.Record = log })
	p := r.open("topics=record", "")
	r.note(audit.Draft{Kind: audit.ServerStarted})
	e := p.next()
	if e.name == "gap" {
		e = p.next()
	} // else it broke before the page was there
	if e.name != "entry" || e.id != "0" {
		t.Errorf("%+v", e)
	}
	if log.fails.Load() >= 0 {
		t.Error("nothing failed")
	}
}

// shut is an audit log that cannot be read until it is opened.
type shut struct {
	*audit.Log
	open  atomic.Bool
	tried chan struct{}
}

func (s *shut) Read(ctx context.Context, filter audit.Filter, follow bool, yield func(audit.Entry) error) error {
	if !s.open.Load() {
		select {
		case s.tried <- struct{}{}:
		default:
		}
		return errors.New("broken on purpose")
	}
	return s.Log.Read(ctx, filter, follow, yield)
}

// While the end of the audit log is unknown, no page is told that the log is another one, and no
// page gets everything again once the log can be read.
func TestRecordThatIsUnknown(t *testing.T) {
	log := &shut{Log: openRecord(t, filepath.Join(t.TempDir(), "record")), tried: make(chan struct{}, 1)}
	r := newRigOn(t, log.Log, &boxes{}, func(d *live.Deps) { d.Record = log })
	for range 4 {
		r.note(audit.Draft{Kind: audit.ServerStarted})
	}
	fresh, back := r.open("topics=record", ""), r.open("topics=record", "1")
	if fresh.lastID != "" || back.lastID != "1" {
		t.Errorf("they would go on after %q and %q", fresh.lastID, back.lastID)
	}
	<-log.tried
	log.open.Store(true)
	for _, want := range []string{"2", "3", "4"} {
		if want == "4" {
			r.note(audit.Draft{Kind: audit.ServerStopped})
		}
		e := back.next()
		for e.name == "gap" && strings.Contains(e.data, "cannot be read now") {
			e = back.next()
		}
		if e.name != "entry" || e.id != want {
			t.Fatalf("%+v, want %s", e, want)
		}
	}
	e := fresh.next()
	for e.name == "gap" && strings.Contains(e.data, "cannot be read now") {
		e = fresh.next()
	}
	if e.name != "entry" || e.id != "4" {
		t.Errorf("%+v", e)
	}
}

// Pages connect and disconnect concurrently, and leave nothing.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t)
	r.boxes.put(box("aaa"))
	r.note(audit.Draft{Kind: audit.ServerStarted})
	r.open("topics=fleet", "").close()
	r.srv.Client().CloseIdleConnections()
	before := steadyGoroutines(t)
	var pages sync.WaitGroup
	for i := range 8 {
		pages.Go(func() {
			for range 6 {
				p := r.ask("page"+strconv.Itoa(i), "topics=fleet,approvals,record&watch=aaa", "")
				p.until("fleet", every)
				p.close()
			}
		})
	}
	pages.Wait()
	r.srv.Client().CloseIdleConnections()
	hosttest.NoMore(t, "goroutines", before, runtime.NumGoroutine)
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
