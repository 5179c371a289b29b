package lifecycle_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// body asks a program inside for its answer.
func (r *rig) body(id string) string {
	r.t.Helper()
	conn, err := r.Dial(r.t.Context(), id, 8080)
	if err != nil {
		r.t.Error(err)
		return ""
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		r.t.Error(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		r.t.Error(err)
	}
	return string(all[max(0, len(all)-len(id)):])
}

func (r *rig) reconcile() lifecycle.Report {
	r.t.Helper()
	report, err := r.Reconcile(r.t.Context())
	if err := incompleteError(report, err); err != nil {
		r.t.Error(err)
	}
	return report
}

// incompleteError returns the error of a Reconcile, or an error if it could not reconcile all
// sandboxes.
func incompleteError(report lifecycle.Report, err error) error {
	if err == nil && len(report.Failed) > 0 {
		return fmt.Errorf("not reconciled: %q", report.Failed)
	}
	return err
}

// P9: after a restart every running sandbox is usable as before.
func TestRestartAdoptsSandboxes(t *testing.T) {
	r := newRig(t)
	var sandboxes []sandbox.Sandbox
	for range 20 {
		sandboxes = append(sandboxes, r.create(alice))
	}
	r.close()
	r.open()
	report := r.reconcile()
	if len(report.Adopted) != len(sandboxes) || len(report.Lost)+len(report.Orphans)+len(report.Expired) != 0 {
		t.Errorf("report: got %+v, want only adopted sandboxes", report)
	}
	for _, sb := range sandboxes {
		got, ok := r.Live(sb.ID)
		if !ok || got.AccessToken != sb.AccessToken || !got.EndAt.Equal(sb.EndAt) || got.Owner != "alice" {
			t.Errorf("adopted %+v, want %+v", got, sb)
		}
		if output := r.body(sb.ID); output != sb.ID {
			t.Errorf("%s answers %q", sb.ID, output)
		}
	}
	for _, sb := range sandboxes {
		if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
			t.Error(err)
		}
	}
	r.wantNothingLeft()
}

func TestRestartEndsExpiredSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		expired := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Minute })
		soon := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = 2 * time.Minute })
		r.close()
		time.Sleep(90 * time.Second)
		r.open()
		report := r.reconcile()
		if !slices.Equal(report.Expired, []string{expired.ID}) || !slices.Equal(report.Adopted, []string{soon.ID}) {
			t.Errorf("report: got %+v, want one expired and one adopted", report)
		}
		if sb := r.stopped(expired.ID); sb.Reason != "timeout" {
			t.Errorf("got reason %q, want timeout", sb.Reason)
		}
		time.Sleep(time.Minute)
		if sb := r.stopped(soon.ID); sb.Reason != "timeout" {
			t.Errorf("reason of the adopted one %q", sb.Reason)
		}
		r.wantNothingLeft()
	})
}

// One sandbox that cannot be reconciled does not block the others: the maintenance loop retries it.
func TestReconcileContinuesAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stuck, fine := r.create(alice), r.create(alice)
		if moved, err := r.store.Move(t.Context(), stuck.ID, sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: "killed"}); err != nil || !moved {
			t.Fatal(moved, err)
		}
		r.close()
		r.open()
		r.setFault(func(at fake.Step, id string) error {
			if at == fake.RemoveBegin && id == stuck.ID {
				return errors.New("broken")
			}
			return nil
		})
		report, err := r.Reconcile(t.Context())
		if err != nil || !slices.Equal(report.Failed, []string{stuck.ID}) || !slices.Equal(report.Adopted, []string{fine.ID}) || len(report.Finished) != 0 {
			t.Errorf("report: got %+v, %v; want one failed and one adopted", report, err)
		}
		_, err = r.Prune(t.Context(), local)
		wantKind(t, err, fault.Internal, "prune_incomplete")
		r.setFault(nil)
		time.Sleep(time.Minute)
		if sb := r.stopped(stuck.ID); sb.Reason != "killed" {
			t.Errorf("got reason %q, want killed", sb.Reason)
		}
		if err := r.Remove(t.Context(), alice, fine.ID); err != nil {
			t.Error(err)
		}
		r.wantNothingLeft()
	})
}

func TestReconcileFindsLostAndOrphaned(t *testing.T) {
	r := newRig(t)
	lost := r.create(alice)
	kept := r.create(alice)
	orphan := r.create(alice)
	r.close()
	r.open()
	if err := r.engine.Lose(lost.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Delete(t.Context(), orphan.ID); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(r.dir, "run", "leftover")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	report := r.reconcile()
	slices.Sort(report.Orphans)
	want := []string{orphan.ID, "leftover"}
	slices.Sort(want)
	if !slices.Equal(report.Lost, []string{lost.ID}) || !slices.Equal(report.Adopted, []string{kept.ID}) || !slices.Equal(report.Orphans, want) {
		t.Errorf("report: got %+v, want one lost, one adopted and two orphans", report)
	}
	if sb, err := r.Get(t.Context(), alice, lost.ID); err != nil || sb.State != sandbox.Stopped || sb.Reason != "lost" {
		t.Errorf("lost one: %+v, %v", sb, err)
	}
	if again := r.reconcile(); len(again.Lost)+len(again.Orphans)+len(again.Finished) != 0 {
		t.Errorf("the second reconciliation finds %+v", again)
	}
}

// Sandboxes of a dead process are removed; those of a living one stay.
func TestReconcileRemovesAbandonedSandboxes(t *testing.T) {
	dead := sandbox.Process{PID: 4, Start: "dead"}
	other := sandbox.Process{PID: 5, Start: "alive"}
	as := func(p sandbox.Process) option { return func(d *lifecycle.Deps) { d.Process = p } }
	first := newRig(t, as(dead))
	ephemeral := func(c *sandbox.CreateRequest) { c.Ephemeral = true }
	gone := first.create(local, ephemeral)
	kept := first.create(local)
	second := &rig{t: t, dir: first.dir, ends: map[string]time.Time{}}
	second.open(as(other))
	defer second.close()
	held := second.create(local, ephemeral)
	// A creation that its process did not finish, and one in progress.
	for id, p := range map[string]sandbox.Process{"i0000000000000000000": dead, "i1111111111111111111": other} {
		if err := first.store.Insert(t.Context(), sandbox.Row{Process: p, Sandbox: sandbox.Sandbox{
			ID: id, State: sandbox.Creating, Engine: "fake", StartedAt: time.Now(),
		}}, 100); err != nil {
			t.Fatal(err)
		}
	}
	third := &rig{t: t, dir: first.dir, ends: map[string]time.Time{}}
	third.open(func(d *lifecycle.Deps) { d.Alive = func(p sandbox.Process) bool { return p == other } })
	defer third.close()
	report := third.reconcile()
	slices.Sort(report.Abandoned)
	slices.Sort(report.Adopted)
	adopted := []string{held.ID, kept.ID}
	slices.Sort(adopted)
	abandoned := []string{gone.ID, "i0000000000000000000"}
	slices.Sort(abandoned)
	if !slices.Equal(report.Abandoned, abandoned) || !slices.Equal(report.Adopted, adopted) ||
		!slices.Equal(report.Left, []string{"i1111111111111111111"}) {
		t.Errorf("report %+v, want abandoned %v, adopted %v", report, abandoned, adopted)
	}
	// Closing ends the sandboxes that the second process holds, and only those.
	second.close()
	if _, err := third.store.Get(t.Context(), held.ID); err == nil {
		t.Error("the ephemeral sandbox outlived its holder")
	}
	if output := third.body(kept.ID); output != kept.ID {
		t.Errorf("the other sandbox answers %q", output)
	}
}

// A paused sandbox that was to end with its process is removed, with its image, when that process
// is dead; either a start or a running process finds it. Sandboxes that outlive their process, or
// whose process lives, stay.
func TestPausedSandboxesOfDeadProcesses(t *testing.T) {
	for name, find := range map[string]func(*rig) []string{
		"start": func(r *rig) []string { return r.reconcile().Abandoned },
		"later": func(*rig) []string { time.Sleep(10 * time.Second); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := sandbox.Process{PID: 4, Start: "dead"}
				alive := func(d *lifecycle.Deps) { d.Alive = func(p sandbox.Process) bool { return p != dead } }
				ephemeral := func(c *sandbox.CreateRequest) { c.Ephemeral = true }
				pause := func(r *rig, id string) {
					if _, err := r.Pause(t.Context(), local, id, false); err != nil {
						t.Fatal(err)
					}
				}
				first := newRig(t, alive, func(d *lifecycle.Deps) { d.Process = dead })
				gone, kept := first.create(local, ephemeral), first.create(local)
				pause(first, gone.ID)
				pause(first, kept.ID)
				second := first.otherProcess(t, alive)
				held := second.create(local, ephemeral)
				pause(second, held.ID)
				third := &rig{t: t, dir: first.dir, ends: map[string]time.Time{}}
				third.open(alive)
				defer third.close()
				if found := find(third); name == "start" && !slices.Equal(found, []string{gone.ID}) {
					t.Errorf("abandoned: %v", found)
				}
				synctest.Wait()
				_, err := third.store.Get(t.Context(), gone.ID)
				wantKind(t, err, fault.NotFound, "sandbox_not_found")
				for _, id := range []string{kept.ID, held.ID} {
					if row, err := third.store.Get(t.Context(), id); err != nil || row.State != sandbox.Paused {
						t.Errorf("%s is %s, %v; want paused", id, row.State, err)
					}
				}
				third.wantImages(2)
			})
		})
	}
}

func TestThisProcessIsAlive(t *testing.T) {
	self, err := sandbox.ThisProcess()
	if err != nil || !self.Alive() {
		t.Errorf("this process: got %+v, %v, alive %t", self, err, self.Alive())
	}
	for _, p := range []sandbox.Process{{}, {PID: self.PID, Start: "another boot/1"}, {PID: 1 << 30, Start: self.Start}, {PID: -1, Start: self.Start}} {
		if p.Alive() {
			t.Errorf("%+v counts as alive", p)
		}
	}
}

func TestPrune(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	aliceSandbox, bobSandbox, running := r.create(alice), r.create(bob), r.create(alice)
	for caller, sb := range map[sandbox.Principal]sandbox.Sandbox{alice: aliceSandbox, bob: bobSandbox} {
		if err := r.Remove(ctx, caller, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	pruned, err := r.Prune(ctx, alice)
	if err != nil || len(pruned.Sandboxes) != 1 || pruned.Sandboxes[0].ID != aliceSandbox.ID {
		t.Errorf("alice prunes %+v, %v", pruned, err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "run", "leftover"), 0o700); err != nil {
		t.Fatal(err)
	}
	pruned, err = r.Prune(ctx, local)
	if err != nil || len(pruned.Sandboxes) != 1 || pruned.Sandboxes[0].ID != bobSandbox.ID {
		t.Errorf("a local caller prunes %+v, %v", pruned, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "run", "leftover")); !os.IsNotExist(err) {
		t.Errorf("the orphaned directory still exists: %v", err)
	}
	if output := r.body(running.ID); output != running.ID {
		t.Errorf("the running sandbox answers %q", output)
	}
}

// An open stream is cut when the sandbox ends.
func TestRemoveCutsStreams(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	conn, err := r.Dial(t.Context(), sb.ID, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a removed sandbox", n)
	}
	if _, err := r.Dial(t.Context(), sb.ID, http.DefaultMaxHeaderBytes); err == nil {
		t.Error("dialed a port that cannot exist")
	}
}
