package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// stopped waits in fake time for a sandbox to stop.
func (r *rig) stopped(id string) sandbox.Sandbox {
	r.t.Helper()
	for range 1000 {
		synctest.Wait()
		sb, err := r.Get(r.t.Context(), local, id)
		if err != nil {
			r.t.Fatal(err)
		}
		if sb.State == sandbox.Stopped {
			return sb
		}
		time.Sleep(time.Millisecond)
	}
	r.t.Fatalf("%s does not stop", id)
	return sandbox.Sandbox{}
}

func TestSandboxesEndAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		short := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Minute })
		long := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = 2 * time.Hour })
		plain := r.create(alice)
		forever := r.create(local, func(c *sandbox.CreateRequest) { c.Forever = true })
		if !forever.EndAt.IsZero() || plain.EndAt.Sub(plain.StartedAt) != 5*time.Minute {
			t.Errorf("ends: forever %v, default %v", forever.EndAt, plain.EndAt.Sub(plain.StartedAt))
		}
		gone := r.Gone(short.ID)
		time.Sleep(time.Until(short.EndAt) - time.Nanosecond)
		synctest.Wait()
		if sb, _ := r.Get(t.Context(), alice, short.ID); sb.State != sandbox.Running {
			t.Errorf("a nanosecond before its end the sandbox is %s (%s)", sb.State, sb.Reason)
		}
		time.Sleep(time.Nanosecond)
		if sb := r.stopped(short.ID); sb.Reason != "timeout" || sb.StoppedAt.Sub(short.EndAt) > 10*time.Millisecond {
			t.Errorf("stopped %v after its end with reason %q", sb.StoppedAt.Sub(short.EndAt), sb.Reason)
		}
		<-gone
		time.Sleep(3 * time.Hour)
		for _, id := range []string{long.ID, plain.ID} {
			if sb := r.stopped(id); sb.Reason != "timeout" {
				t.Errorf("ended sandbox: got %+v, want reason timeout", sb)
			}
		}
		if sb, _ := r.Get(t.Context(), local, forever.ID); sb.State != sandbox.Running {
			t.Errorf("forever is %s", sb.State)
		}
	})
}

func TestSetTimeoutAndExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := t.Context()
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = 10 * time.Minute })
		same, err := r.Extend(ctx, alice, sb.ID, time.Minute)
		if err != nil || !same.EndAt.Equal(sb.EndAt) {
			t.Errorf("extended to an earlier end: %v, %v; want %v", same.EndAt, err, sb.EndAt)
		}
		later, err := r.Extend(ctx, alice, sb.ID, time.Hour)
		if err != nil || time.Until(later.EndAt) != time.Hour {
			t.Errorf("extended by an hour: %v, %v", time.Until(later.EndAt), err)
		}
		r.mu.Lock()
		guestEnd := r.ends[sb.ID]
		r.mu.Unlock()
		if !guestEnd.Equal(later.EndAt) {
			t.Errorf("the guest has the end %v, want %v", guestEnd, later.EndAt)
		}
		time.Sleep(30 * time.Minute)
		if got, _ := r.Get(ctx, alice, sb.ID); got.State != sandbox.Running {
			t.Fatalf("extended sandbox is %s (%s)", got.State, got.Reason)
		}
		shorter, err := r.SetTimeout(ctx, alice, sb.ID, time.Second)
		if err != nil || time.Until(shorter.EndAt) != time.Second {
			t.Errorf("shortened to a second: got %v, %v", time.Until(shorter.EndAt), err)
		}
		time.Sleep(time.Second)
		if got := r.stopped(sb.ID); got.Reason != "timeout" {
			t.Errorf("got reason %q, want timeout", got.Reason)
		}
		for _, op := range []func() error{
			func() error { _, err := r.SetTimeout(ctx, alice, sb.ID, time.Minute); return err },
			func() error { _, err := r.SetTimeout(ctx, alice, sb.ID, 0); return err },
			func() error { _, err := r.Extend(ctx, alice, sb.ID, time.Minute); return err },
		} {
			wantKind(t, op(), fault.NotFound, "sandbox_not_running")
		}
		other := r.create(alice)
		_, err = r.SetTimeout(ctx, alice, other.ID, -time.Second)
		wantKind(t, err, fault.Invalid, "timeout_invalid")
		_, err = r.SetTimeout(ctx, alice, other.ID, 25*time.Hour)
		wantKind(t, err, fault.Invalid, "timeout_invalid")
		now, err := r.SetTimeout(ctx, alice, other.ID, 0)
		if err != nil || now.State != sandbox.Stopped || now.Reason != sandbox.ReasonKilled {
			t.Errorf("ended now: %+v, %v", now, err)
		}
		r.wantNothingLeft()
	})
}

func TestGuestEndIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb := r.create(alice)
		r.mu.Lock()
		r.refuseUpdates = true
		r.mu.Unlock()
		later, err := r.Extend(t.Context(), alice, sb.ID, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.refuseUpdates = false
		r.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ends[sb.ID].Equal(later.EndAt) {
			t.Errorf("the guest has the end %v, want %v", r.ends[sb.ID], later.EndAt)
		}
	})
}

func TestReasonOfEnd(t *testing.T) {
	for _, tc := range []struct {
		exit engine.Reason
		late bool // after its end
		want string
	}{
		{engine.ReasonOOM, false, "oom"}, {engine.ReasonExited, false, "exited"}, {engine.ReasonCrashed, false, "crashed"},
		{engine.ReasonKilled, false, "killed"}, {engine.ReasonExited, true, "timeout"}, {engine.ReasonOOM, true, "oom"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			gone := r.Gone(sb.ID)
			exit := engine.Exit{Reason: tc.exit, At: time.Now()}
			if tc.late {
				exit.At = sb.EndAt
			}
			r.engine.Stop(sb.ID, exit)
			<-gone
			if got := r.stopped(sb.ID); got.Reason != tc.want || !got.StoppedAt.Equal(exit.At) {
				t.Errorf("%s, late %t: reason %q at %v, want %q at %v", tc.exit, tc.late, got.Reason, got.StoppedAt, tc.want, exit.At)
			}
			r.wantNothingLeft()
		})
	}
}

// TestChangesOfOtherProcessesAreAdopted checks that this process adopts changes of a row that
// another process makes.
func TestChangesOfOtherProcessesAreAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other := &rig{t: t, dir: r.dir, ends: make(map[string]time.Time)}
		other.open()
		defer other.close()
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Minute })
		if _, ok := other.Live(sb.ID); !ok {
			t.Error("the other process does not find the sandbox")
		}
		if _, err := other.Extend(t.Context(), alice, sb.ID, time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, _ := r.Get(t.Context(), alice, sb.ID); got.State != sandbox.Running {
			t.Errorf("sandbox extended by another process is %s (%s)", got.State, got.Reason)
		}
		if sb, ok := r.Live(sb.ID); !ok || time.Until(sb.EndAt) < 50*time.Minute {
			t.Errorf("live %t, end in %v", ok, time.Until(sb.EndAt))
		}
		// Another process changes the end just before our own clock acts on it.
		tight := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Second })
		if _, err := other.Extend(t.Context(), alice, tight.ID, time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, _ := r.Get(t.Context(), alice, tight.ID); got.State != sandbox.Running {
			t.Errorf("sandbox extended by another process is %s (%s)", got.State, got.Reason)
		}
		if err := r.Remove(t.Context(), alice, tight.ID); err != nil {
			t.Fatal(err)
		}
		gone := r.Gone(sb.ID)
		if err := other.Remove(t.Context(), alice, sb.ID); err != nil {
			t.Fatal(err)
		}
		<-gone
		if _, ok := r.Live(sb.ID); ok {
			t.Error("the sandbox is live after its removal by another process")
		}
		r.wantNothingLeft()
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = 3 * time.Hour })
		time.Sleep(time.Minute + time.Second)
		all, err := r.Metrics(t.Context(), alice, sb.ID, time.Time{}, time.Time{})
		if err != nil || len(all) != 13 {
			t.Fatalf("%d samples, %v; want 12 and one taken now", len(all), err)
		}
		for _, m := range all[1:] {
			if m.CPUPercent < 49 || m.CPUPercent > 51 || m.MemTotal != sb.Limits.MemoryBytes {
				t.Errorf("sample: got %+v, want about half of a CPU", m)
			}
		}
		some, err := r.Metrics(t.Context(), alice, sb.ID, all[3].At, all[5].At)
		if err != nil || len(some) != 3 {
			t.Errorf("%d samples in a span of 3, %v", len(some), err)
		}
		time.Sleep(2 * time.Hour)
		all, err = r.Metrics(t.Context(), alice, sb.ID, time.Time{}, time.Time{})
		if err != nil || len(all) != 720 {
			t.Errorf("%d samples after two hours, %v; want the bound of 720", len(all), err)
		}
		for i := 1; i < len(all); i++ {
			if !all[i].At.After(all[i-1].At) {
				t.Fatalf("sample %d is not after the one before", i)
			}
		}
	})
}

func TestOldRowsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) { d.Settings.Retention = 10 * time.Minute })
		sb := r.create(alice)
		if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		if _, err := r.Get(t.Context(), alice, sb.ID); err != nil {
			t.Errorf("row after 9 of 10 minutes: %v", err)
		}
		time.Sleep(3 * time.Minute)
		_, err := r.Get(t.Context(), alice, sb.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
	})
}
