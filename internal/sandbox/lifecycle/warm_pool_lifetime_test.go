package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A creation that fails leaves nothing, and is not retried at once. If its removal fails, the
// removal is retried until it succeeds.
func TestFailedFillIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoolRig(t)
		tries, broken := 0, true
		p.setFault(func(step fake.Step, _ string) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if step == fake.CreateReady {
				tries++
			}
			if broken && (step == fake.CreateReady || step == fake.RemoveBegin) {
				return errors.New("broken on purpose")
			}
			return nil
		})
		p.StartPool(warmpool.Options{Defaults: []sandbox.CreateRequest{opened}, Memory: func() (demand.Memory, error) { return p.memory, nil }})
		time.Sleep(8 * time.Second)
		p.mu.Lock()
		if tries != 2 {
			t.Errorf("tried %d times in 8 s", tries)
		}
		broken = false
		p.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if rows := p.rows(); len(rows) != 1 || p.countWarm() != 1 {
			t.Errorf("%d rows, %d are warm", len(rows), p.countWarm())
		}
		p.wantCleanClose()
	})
}

// Warm sandboxes are removed when memory is short, and made again when it is not.
func TestPoolShrinksUnderMemoryPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoolRig(t)
		p.start(opened, plain)
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30, Stalled: 30})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if p.countWarm() != 0 {
			t.Error("sandboxes are warm under memory pressure")
		}
		p.wantNothingLeft()
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if p.countWarm() != 2 {
			t.Errorf("%d are warm after it has passed", p.countWarm())
		}
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 1 << 29})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if p.countWarm() != 0 {
			t.Errorf("%d are warm where memory is scarce", p.countWarm())
		}
	})
}

// As many sandboxes are warm as bursts need, while there are bursts; and none ends while it is
// wanted.
func TestPoolFollowsDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoolRig(t)
		p.start(opened)
		for range 5 {
			p.create(alice)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := p.countWarm(); n != 6 {
			t.Errorf("%d are warm after a burst of 5", n)
		}
		time.Sleep(5 * time.Minute)
		for _, r := range p.rows() {
			if end := p.lastSentEnd(r.ID); time.Until(end) < 5*time.Minute {
				t.Errorf("one ends in %s", time.Until(end))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := p.countWarm(); n != 1 {
			t.Errorf("%d are warm an hour later", n)
		}
		if boot, _, _ := p.configs(p.rows()[0].ID); boot.Offline {
			t.Error("the warm one is not of the usual kind")
		}
	})
}

// Sandboxes of an interpreter's template are warm with its language loaded: they are restored from
// a template snapshot, which never had an owner. If that is not possible, each loads the language.
// JavaScript is never restored: each sandbox loads its own.
func TestPreload(t *testing.T) {
	for name, tc := range map[string]struct {
		broken fake.Step
		copied bool
	}{"restored": {"", true}, "not saved": {fake.CheckpointSaved, false}, "not restored": {fake.RestoreBegin, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPoolRig(t)
				p.setFault(func(step fake.Step, _ string) error {
					if step == tc.broken {
						return errors.New("broken on purpose")
					}
					return nil
				})
				p.start(sandbox.CreateRequest{Template: "code-interpreter-v1"}, plain)
				for _, r := range p.rows() {
					boot, _, _ := p.configs(r.ID)
					loaded := r.Template == "code-interpreter-v1"
					want := []string{"python", "javascript"}
					if tc.copied {
						want = want[1:]
					}
					if slices.Equal(boot.Preload, want) != loaded || (boot.Renew == guest.Copied) != (loaded && tc.copied) {
						t.Errorf("%s is loaded with %v as %q", r.Template, boot.Preload, boot.Renew)
					}
				}
				sb, err := p.Create(t.Context(), alice, sandbox.CreateRequest{Template: "code-interpreter-v1"})
				if _, _, claimed := p.configs(sb.ID); err != nil || !claimed {
					t.Errorf("a warm sandbox was acquired: got %t, %v; want true", claimed, err)
				}
				p.Remove(t.Context(), alice, sb.ID)
				p.close()
				if drafts, err := os.ReadDir(filepath.Join(p.dir, "states", "drafts")); err != nil || len(drafts) != 0 {
					t.Errorf("drafts remain: %v, %v", drafts, err)
				}
				p.wantCleanClose()
			})
		})
	}
}

// A request for a kind that starts at once finds it warm while languages load for others.
func TestLoadingLanguagesDoesNotBlockOthers(t *testing.T) {
	p := newPoolRig(t)
	load := make(chan struct{})
	loads := sync.OnceFunc(func() { close(load) })
	t.Cleanup(loads)
	p.setFault(func(step fake.Step, _ string) error {
		if step == fake.CheckpointSaved {
			<-load
		}
		return nil
	})
	loaded := sandbox.CreateRequest{Template: "code-interpreter-v1"}
	p.begin(loaded, plain)
	for range 3 {
		p.awaitWarm(1)
		sb, err := p.Create(t.Context(), alice, plain)
		if _, _, claimed := p.configs(sb.ID); err != nil || !claimed {
			t.Errorf("a warm sandbox was acquired: got %t, %v; want true", claimed, err)
		}
	}
	loads()
	hosttest.Eventually(t, "one with languages waits", func() bool {
		status, _ := p.Pool()
		return slices.ContainsFunc(status.Kinds, func(k warmpool.KindStatus) bool { return k.Name == "code-interpreter-v1" && k.Waiting == 1 })
	})
	sb, err := p.Create(t.Context(), alice, loaded)
	if boot, _, claimed := p.configs(sb.ID); err != nil || !claimed || boot.Renew != guest.Copied {
		t.Errorf("claimed %t, made as %q, %v", claimed, boot.Renew, err)
	}
}

// templatesWithRevision has a template whose programs change.
type templatesWithRevision struct {
	templates
	revision *atomic.Pointer[string]
}

func (s templatesWithRevision) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := s.templates.Resolve(ctx, ref)
	t.Revision = *s.revision.Load()
	return t, err
}

// A warm sandbox whose template has got new programs since its boot is not handed out. The usual
// kinds become warm again with the new programs.
func TestPoolFollowsTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revision atomic.Pointer[string]
		set := func(to string) { revision.Store(&to) }
		set("old")
		p := newPoolRig(t, func(d *lifecycle.Deps) { d.Templates = templatesWithRevision{revision: &revision} })
		p.start(opened)
		old := p.rows()[0].ID
		set("new")
		sb, err := p.Create(t.Context(), alice, opened)
		if _, _, claimed := p.configs(sb.ID); err != nil || claimed {
			t.Errorf("a sandbox with old programs was acquired: got %t, %v; want false", claimed, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		rows := p.rows()
		if len(rows) != 1 || rows[0].ID == old || rows[0].Base.Revision != "new" {
			t.Errorf("warm sandboxes: got %+v, want one with the new programs", rows)
		}
		sb, err = p.Create(t.Context(), alice, opened)
		if err != nil || sb.ID != rows[0].ID {
			t.Errorf("creation with the new programs: got %s, %v; want the warm sandbox", sb.ID, err)
		}
		set("newer")
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range p.rows() {
			if r.Base.Revision != "newer" {
				t.Errorf("a warm sandbox has the programs %q", r.Base.Revision)
			}
		}
	})
}

// A request that arrives while the pool is being closed must not acquire a sandbox that close would
// then not end.
func TestClosingPoolHandsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoolRig(t)
		var made atomic.Int32
		second, closed := make(chan struct{}), make(chan struct{})
		p.setFault(func(step fake.Step, _ string) error {
			if step == fake.CreateReady && made.Add(1) == 2 {
				<-second
			}
			return nil
		})
		p.begin(opened, plain)
		p.awaitWarm(1)
		time.Sleep(time.Second)
		go func() {
			defer close(closed)
			p.close() // it waits for the one that is being made
		}()
		synctest.Wait()
		_, err := p.Create(t.Context(), alice, opened)
		wantKind(t, err, fault.Unavailable, "shutting_down")
		if made.Load() != 2 {
			t.Fatalf("%d sandboxes were created, want 2", made.Load())
		}
		close(second)
		<-closed
		p.wantCleanClose()
	})
}

// slowSecretStore is a secret store that takes its time, and then fails.
type slowSecretStore struct {
	*ownValueStore
	asked, answer chan struct{}
}

func (s slowSecretStore) Resolve(context.Context, sandbox.Holder, *policy.Policy) ([]egress.Secret, error) {
	close(s.asked)
	<-s.answer
	return nil, errors.New("no value")
}

// A sandbox that a request returns after its kind was given up is ended: no request would get it,
// and close would not find it.
func TestReturnedSandboxWithoutKindIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revision atomic.Pointer[string]
		set := func(to string) { revision.Store(&to) }
		set("old")
		secrets := slowSecretStore{asked: make(chan struct{}), answer: make(chan struct{})}
		p := newPoolRig(t, func(d *lifecycle.Deps) {
			secrets.ownValueStore = d.Sealed.(*ownValueStore)
			d.Templates, d.Sealed = templatesWithRevision{revision: &revision}, secrets
		})
		p.start(opened)
		old := p.rows()[0].ID
		refused := make(chan error, 1)
		go func() {
			_, err := p.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Access: accessWithHeader(t, "canary")})
			refused <- err
		}()
		<-secrets.asked
		set("new")
		time.Sleep(time.Minute)
		if rows := p.rows(); !slices.ContainsFunc(rows, func(r sandbox.Row) bool { return r.ID == old }) {
			t.Fatalf("the sandbox is not in use by the request: %v", rows)
		}
		close(secrets.answer)
		if err := <-refused; err == nil {
			t.Error("the sandbox was created without its value")
		}
		synctest.Wait()
		for _, r := range p.rows() {
			if r.Base.Revision != "new" {
				t.Errorf("a warm sandbox has the programs %q", r.Base.Revision)
			}
		}
		p.wantCleanClose()
	})
}

// 200 acquisitions and removals leave nothing, also not after the end.
func TestPoolLeavesNothing(t *testing.T) {
	p := newPoolRig(t)
	p.start(opened)
	for range 200 {
		sb, err := p.Create(t.Context(), alice, opened)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Forget(t.Context(), alice, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	p.wantCleanClose()
}
