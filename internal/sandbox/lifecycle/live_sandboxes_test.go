package lifecycle

import (
	"context"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

func liveOne(id string, end time.Time, pause bool) *liveSandbox {
	r := sandbox.Row{Run: 1, Sandbox: sandbox.Sandbox{ID: id, State: sandbox.Running, EndAt: end, OnEnd: sandbox.OnEnd{Pause: pause}}}
	_, cancel := context.WithCancel(context.Background())
	return &liveSandbox{id: id, record: r, gone: make(chan struct{}), cancel: cancel}
}

func TestDeadlinesAreTakenOnce(t *testing.T) {
	l, now := newLiveSandboxes(), time.Now()
	start := func() bool { return true }
	first, paused, forever := liveOne("a", now, false), liveOne("b", now, true), liveOne("c", time.Time{}, false)
	later := liveOne("d", now.Add(time.Hour), false)
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
	if next := l.nextDue(); !next.Equal(later.record.EndAt) {
		t.Errorf("next at %s", next)
	}
	l.notEnding(first)
	if _, end := l.takeDue(now); len(end) != 1 || end[0] != first {
		t.Errorf("taken again: %v", end)
	}
}

// A failed pause is delayed longer each time, also for the next watch.
func TestFailedPausesArePutOff(t *testing.T) {
	l, now := newLiveSandboxes(), time.Now()
	b := liveOne("a", now, true)
	l.add(b, func() bool { return true })
	var last delay
	for i := range 10 {
		d := l.delay("a")
		if d.tries != i+1 || d.until.Before(last.until) || d.until.After(time.Now().Add(maxDelay)) {
			t.Fatalf("put off: %+v after %+v", d, last)
		}
		last = d
	}
	l.remove("a")
	if !b.left() {
		t.Error("it has not gone")
	}
	next := liveOne("a", now, true)
	l.add(next, func() bool { return true })
	if at := l.nextDue(); !at.Equal(last.until) {
		t.Errorf("tried again at %s, not %s", at, last.until)
	}
	moved := next.record
	moved.EndAt = now.Add(time.Minute)
	l.setEnd(moved)
	if at := l.nextDue(); !at.Equal(moved.EndAt) || len(l.delays) != 0 {
		t.Errorf("a new end is due at %s", at)
	}
}

func TestAnotherInstanceIsNoticed(t *testing.T) {
	l := newLiveSandboxes()
	b := liveOne("a", time.Now(), false)
	if l.add(b, func() bool { return false }) || l.refresh(b.record) {
		t.Error("what does not start to be watched is there")
	}
	l.add(b, func() bool { return true })
	r := b.record
	if there, same, policy := l.compare(r); !there || !same || policy {
		t.Errorf("the same row: %t, %t, %t", there, same, policy)
	}
	l.setEndUnsent("a", true)
	if _, same, _ := l.compare(r); same {
		t.Error("an end of which the guest has not heard is taken for known")
	}
	r.PolicyDigest, r.Run = "other", 2
	if there, same, policy := l.compare(r); !there || same || !policy {
		t.Errorf("another row: %t, %t, %t", there, same, policy)
	}
	if !l.refresh(r) {
		t.Error("another instance is not noticed")
	}
	l.release()
	if b, _ := l.find("a"); b != nil {
		t.Error("it is still there")
	}
}
