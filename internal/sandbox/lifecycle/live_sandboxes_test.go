package lifecycle

import (
	"context"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

func newLiveSandbox(id string, end time.Time, pause bool) *liveSandbox {
	r := sandbox.Row{Run: 1, Sandbox: sandbox.Sandbox{ID: id, State: sandbox.Running, EndAt: end, OnEnd: sandbox.OnEnd{Pause: pause}}}
	_, cancel := context.WithCancel(context.Background())
	return &liveSandbox{id: id, row: r, gone: make(chan struct{}), cancel: cancel}
}

func TestDeadlinesAreTakenOnce(t *testing.T) {
	l, now := newLiveSandboxes(), time.Now()
	start := func() bool { return true }
	first, paused, forever := newLiveSandbox("a", now, false), newLiveSandbox("b", now, true), newLiveSandbox("c", time.Time{}, false)
	later := newLiveSandbox("d", now.Add(time.Hour), false)
	for _, b := range []*liveSandbox{first, paused, forever, later} {
		if !l.add(b, start) || l.add(b, start) {
			t.Fatalf("%s is not added once", b.id)
		}
	}
	if next := l.nextDue(); !next.Equal(now) {
		t.Errorf("next at %s", next)
	}
	pause, end := l.takeDue(now)
	if len(pause) != 1 || pause[0] != paused || len(end) != 1 || end[0] != first {
		t.Errorf("taken: %v and %v", pause, end)
	}
	if pause, end := l.takeDue(now); len(pause)+len(end) != 0 {
		t.Errorf("taken twice: %v, %v", pause, end)
	}
	if next := l.nextDue(); !next.Equal(later.row.EndAt) {
		t.Errorf("next at %s", next)
	}
	l.notEnding(first)
	if _, end := l.takeDue(now); len(end) != 1 || end[0] != first {
		t.Errorf("taken again: %v", end)
	}
}

// A failed pause is delayed longer each time, also for the next watch.
func TestFailedPausesAreDelayed(t *testing.T) {
	l, now := newLiveSandboxes(), time.Now()
	b := newLiveSandbox("a", now, true)
	l.add(b, func() bool { return true })
	var last delay
	for i := range 10 {
		d := l.delay("a")
		if d.tries != i+1 || d.until.Before(last.until) || d.until.After(time.Now().Add(maxDelay)) {
			t.Fatalf("delay %+v after %+v", d, last)
		}
		last = d
	}
	l.remove("a")
	if !b.hasEnded() {
		t.Error("hasEnded reports false after remove")
	}
	next := newLiveSandbox("a", now, true)
	l.add(next, func() bool { return true })
	if at := l.nextDue(); !at.Equal(last.until) {
		t.Errorf("next deadline is %s, want %s", at, last.until)
	}
	moved := next.row
	moved.EndAt = now.Add(time.Minute)
	l.setEnd(moved)
	if at := l.nextDue(); !at.Equal(moved.EndAt) || len(l.delays) != 0 {
		t.Errorf("a new end is due at %s", at)
	}
}

func TestCompareNoticesOtherInstance(t *testing.T) {
	l := newLiveSandboxes()
	b := newLiveSandbox("a", time.Now(), false)
	if l.add(b, func() bool { return false }) || l.refresh(b.row) {
		t.Error("a sandbox whose watch does not start was added")
	}
	l.add(b, func() bool { return true })
	r := b.row
	if watched, same, policy := l.compare(r); !watched || !same || policy {
		t.Errorf("the same row: %t, %t, %t", watched, same, policy)
	}
	l.setEndUnsent("a", true)
	if _, same, _ := l.compare(r); same {
		t.Error("a row whose end was not sent to the guest counts as the same")
	}
	r.PolicyDigest, r.Run = "other", 2
	if watched, same, policy := l.compare(r); !watched || same || !policy {
		t.Errorf("another row: %t, %t, %t", watched, same, policy)
	}
	if !l.refresh(r) {
		t.Error("another instance is not noticed")
	}
	l.release()
	if b, _ := l.find("a"); b != nil {
		t.Error("the sandbox is still watched after release")
	}
}
