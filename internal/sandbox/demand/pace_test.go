package demand

import (
	"testing"
	"time"
)

func TestPaceLeavesTimeToCallers(t *testing.T) {
	var p Pace
	if left := p.Left(start); left > 0 {
		t.Errorf("before any creation %v are left", left)
	}
	p.Add(start)
	if left := p.Left(start); left != quiet {
		t.Errorf("after one request %v are left, not %v", left, quiet)
	}
	at := start.Add(soon - 1)
	p.Add(at)
	if left := p.Left(at); left != Hasty {
		t.Errorf("after two within %v, %v are left, not %v", soon, left, Hasty)
	}
	at = at.Add(Hasty)
	if left := p.Left(at); left > 0 {
		t.Errorf("%v after the second, %v are left", Hasty, left)
	}
	p.End(at)
	if left := p.Left(at); left != Hasty {
		t.Errorf("after the end of a creation %v are left, not %v", left, Hasty)
	}
	at = at.Add(soon)
	p.Add(at)
	if left := p.Left(at); left != quiet {
		t.Errorf("after a request that followed none, %v are left, not %v", left, quiet)
	}
}

func TestBackoffDoublesUpToLimit(t *testing.T) {
	var b Backoff
	if left := b.Left(start); left > 0 {
		t.Errorf("before a failure %v are left", left)
	}
	for _, want := range []time.Duration{FailPause, 2 * FailPause, 4 * FailPause} {
		if got := b.Fail(start); got != want || b.Left(start) != want {
			t.Errorf("a pause of %v with %v left, not %v", got, b.Left(start), want)
		}
	}
	for range 10 {
		b.Fail(start)
	}
	if left := b.Left(start); left != failPauseMax {
		t.Errorf("after many failures %v are left, not %v", left, failPauseMax)
	}
	b.Succeed()
	if left := b.Left(start); left != failPauseMax {
		t.Errorf("after Succeed %v of the pause are left, want it unchanged", left)
	}
	if got := b.Fail(start.Add(failPauseMax)); got != FailPause {
		t.Errorf("after a success and a failure the pause is %v, not %v", got, FailPause)
	}
}
