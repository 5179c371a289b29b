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

// rehearsing is a rig whose sandboxes do their warm-up at once. It records the requests that guests
// got at an acquisition.
type rehearsing struct {
	*poolRig
	mu     sync.Mutex
	claims []guest.Config
	ran    []string // sandboxes with the token that their program was started with
}

func newRehearsing(t *testing.T, refuse func(guest.Config) (int, string), runs func()) *rehearsing {
	t.Helper()
	r := &rehearsing{poolRig: newPoolRig(t)}
	r.options = warmpool.Options{Rehearse: 1}
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

func (r *rehearsing) seen() ([]guest.Config, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.claims), slices.Clone(r.ran)
}

// A sandbox runs its warm-up once, with only the configuration that it was created with, and can
// then be acquired like any other.
func TestRehearsal(t *testing.T) {
	r := newRehearsing(t, nil, nil)
	r.start(plain)
	hosttest.Eventually(t, "a rehearsal", func() bool { claims, _ := r.seen(); return len(claims) == 1 })
	row := r.rows()[0]
	boot, _, _ := r.configs(row.ID)
	claims, ran := r.seen()
	if want := []string{row.ID + " " + boot.AccessToken}; !slices.Equal(ran, want) {
		t.Errorf("ran by %q, not %q", ran, want)
	}
	mine := claims[0]
	if mine.SandboxID != row.ID || mine.AccessToken != boot.AccessToken || mine.ControlToken != boot.ControlToken || mine.Renew != guest.Claimed || !mine.EndAt.After(time.Now()) {
		t.Errorf("rehearsed with %+v", mine)
	}
	sb, err := r.Create(t.Context(), alice, plain)
	if err != nil || sb.ID != row.ID {
		t.Fatalf("got %s, not %s: %v", sb.ID, row.ID, err)
	}
	hosttest.Eventually(t, "another rehearsal", func() bool { claims, _ := r.seen(); return len(claims) == 3 })
	claims, _ = r.seen()
	if claims[1].SandboxID != sb.ID || claims[1].AccessToken != sb.AccessToken || claims[2].SandboxID == sb.ID {
		t.Errorf("claimed as %+v, then %+v", claims[1], claims[2])
	}
}

// amid makes a request during a sandbox's warm-up, and returns the caller's result and which
// sandbox was warmed up.
func (r *rehearsing) amid(entered <-chan struct{}, release chan<- struct{}) (sb sandbox.Sandbox, id string) {
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
	hosttest.Eventually(r.t, "a caller", func() bool { return r.waiting() == 0 })
	close(release)
	return <-got, id
}

// A request during a warm-up is served after it. From then on, only the caller acts on the sandbox.
func TestCallerWaitsForRehearsal(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	r := newRehearsing(t, nil, func() { entered <- struct{}{}; <-release })
	sb, id := r.amid(entered, release)
	claims, _ := r.seen()
	if sb.ID != id || len(claims) < 2 || claims[0].AccessToken == sb.AccessToken || claims[1].AccessToken != sb.AccessToken {
		t.Errorf("%s, not %s; claimed by %d", sb.ID, id, len(claims))
	}
}

// A request during a warm-up that fails gets another sandbox: the failed step may still take
// effect.
func TestCallerOfFailedRehearsal(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	r := newRehearsing(t, refuseFirst(), func() { entered <- struct{}{}; <-release })
	if sb, id := r.amid(entered, release); sb.ID == id {
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
func TestRehearsalFails(t *testing.T) {
	r := newRehearsing(t, refuseFirst(), nil)
	r.start(plain)
	hosttest.Eventually(t, "two rehearsals", func() bool { claims, _ := r.seen(); return len(claims) == 2 })
	claims, _ := r.seen()
	sb, err := r.Create(t.Context(), alice, plain)
	if err != nil || sb.ID == claims[0].SandboxID {
		t.Errorf("handed out %s: %v", sb.ID, err)
	}
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Error(err)
	}
	r.leavesNothing()
}
