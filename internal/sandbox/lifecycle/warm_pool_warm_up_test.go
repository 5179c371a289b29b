package lifecycle_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// warmUpRig is a rig whose sandboxes do their warm-up at once. It records the requests that guests
// got at an acquisition.
type warmUpRig struct {
	*poolRig
	mu     sync.Mutex
	claims []guest.Config
	ran    []string // sandboxes with the token that their program was started with
}

func newWarmUpRig(t *testing.T, refuse func(guest.Config) (int, string), runs func()) *warmUpRig {
	t.Helper()
	r := &warmUpRig{poolRig: newPoolRig(t)}
	r.options = warmpool.Options{WarmUpAfter: 1}
	r.poolRig.ran = func(id string, req *http.Request) {
		r.mu.Lock()
		r.ran = append(r.ran, id+" "+req.Header.Get(files.TokenHeader))
		r.mu.Unlock()
		if runs != nil {
			runs()
		}
	}
	r.setRefuse(func(cfg guest.Config) (int, string) {
		r.mu.Lock()
		r.claims = append(r.claims, cfg)
		r.mu.Unlock()
		if refuse != nil {
			return refuse(cfg)
		}
		return 0, ""
	})
	return r
}

func (r *warmUpRig) seen() ([]guest.Config, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.claims), slices.Clone(r.ran)
}

// A sandbox runs its warm-up once, with only the configuration that it was created with, and can
// then be acquired like any other.
func TestWarmUpRunsOnce(t *testing.T) {
	r := newWarmUpRig(t, nil, nil)
	r.start(plain)
	hosttest.Eventually(t, "a warm-up", func() bool { claims, _ := r.seen(); return len(claims) == 1 })
	row := r.rows()[0]
	boot, _, _ := r.configs(row.ID)
	claims, ran := r.seen()
	if want := []string{row.ID + " " + boot.AccessToken}; !slices.Equal(ran, want) {
		t.Errorf("program started by %q, want %q", ran, want)
	}
	first := claims[0]
	if first.SandboxID != row.ID || first.AccessToken != boot.AccessToken || first.ControlToken != boot.ControlToken || first.Renew != guest.Claimed || !first.EndAt.After(time.Now()) {
		t.Errorf("warm-up used %+v", first)
	}
	sb, err := r.Create(t.Context(), alice, plain)
	if err != nil || sb.ID != row.ID {
		t.Fatalf("got %s, not %s: %v", sb.ID, row.ID, err)
	}
	hosttest.Eventually(t, "another warm-up", func() bool { claims, _ := r.seen(); return len(claims) == 3 })
	claims, _ = r.seen()
	if claims[1].SandboxID != sb.ID || claims[1].AccessToken != sb.AccessToken || claims[2].SandboxID == sb.ID {
		t.Errorf("claimed as %+v, then %+v", claims[1], claims[2])
	}
}

// createDuringWarmUp makes a request during a sandbox's warm-up, and returns the caller's result
// and which sandbox was warmed up.
func (r *warmUpRig) createDuringWarmUp(entered <-chan struct{}, release chan<- struct{}) (sb sandbox.Sandbox, id string) {
	r.t.Helper()
	r.start(plain)
	id = r.rows()[0].ID
	<-entered
	got := make(chan sandbox.Sandbox, 1)
	go func() {
		sb, err := r.Create(r.t.Context(), alice, plain)
		if err != nil {
			r.t.Error(err)
		}
		got <- sb
	}()
	// The sandbox was taken out of the pool for the caller.
	hosttest.Eventually(r.t, "a caller", func() bool { return r.countWarm() == 0 })
	close(release)
	return <-got, id
}

// A request during a warm-up is served after it. From then on, only the caller acts on the sandbox.
func TestCallerWaitsForWarmUp(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	r := newWarmUpRig(t, nil, func() { entered <- struct{}{}; <-release })
	sb, id := r.createDuringWarmUp(entered, release)
	claims, _ := r.seen()
	if sb.ID != id || len(claims) < 2 || claims[0].AccessToken == sb.AccessToken || claims[1].AccessToken != sb.AccessToken {
		t.Errorf("%s, not %s; claimed by %d", sb.ID, id, len(claims))
	}
}

// A request during a warm-up that fails gets another sandbox: the failed step may still take
// effect.
func TestCallerSkipsFailedWarmUp(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	r := newWarmUpRig(t, refuseFirst(), func() { entered <- struct{}{}; <-release })
	if sb, id := r.createDuringWarmUp(entered, release); sb.ID == id {
		t.Errorf("handed out %s", id)
	}
}

// refuseFirst refuses only the first acquisition.
func refuseFirst() func(guest.Config) (int, string) {
	var first sync.Once
	return func(guest.Config) (status int, text string) {
		first.Do(func() { status, text = http.StatusConflict, "no" })
		return status, text
	}
}

// A sandbox whose warm-up fails is never handed out.
func TestFailedWarmUpIsNotHandedOut(t *testing.T) {
	r := newWarmUpRig(t, refuseFirst(), nil)
	r.start(plain)
	hosttest.Eventually(t, "two warm-ups", func() bool { claims, _ := r.seen(); return len(claims) == 2 })
	claims, _ := r.seen()
	sb, err := r.Create(t.Context(), alice, plain)
	if err != nil || sb.ID == claims[0].SandboxID {
		t.Errorf("handed out %s: %v", sb.ID, err)
	}
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Error(err)
	}
	r.wantCleanClose()
}
