package upgrade_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// P52: this version opens a state directory of an earlier version, whose server was stopped or
// killed, and everything in it is unchanged.
func TestUpgrade(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Program("curl"))
	if err := startOutside(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	old := earlier
	for name, leave := range map[string]func(*testing.T, *servetest.Server){
		"stopped": func(t *testing.T, s *servetest.Server) { s.Stop(t) },
		"killed":  func(_ *testing.T, s *servetest.Server) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			p := createEarlierState(t, old)
			before := p.explainPolicy(t, old, p.runs) + p.explainPolicy(t, old, p.copied)
			leave(t, p.server)
			p.server = servetest.Start(t, program, p.state)
			c := p.server.Local(t)
			// The order matters: no step may change what a later one checks.
			p.checkListed(t, c)
			if after := p.explainPolicy(t, program, p.runs) + p.explainPolicy(t, program, p.copied); after != before {
				t.Errorf("the policies' decisions were\n%s and are\n%s", before, after)
			}
			p.checkAuditLog(t)
			p.checkApprovals(t, c)
			p.checkSecrets(t, c)
			p.checkInjection(t, c)
			p.checkRunning(t, c)
			p.checkSaved(t, c)
			p.checkStrictest(t, c)
			p.checkChanges(t, c)
			p.checkAuditLog(t)
			p.checkDowngradeRefused(t, old)
		})
	}
}

func (p *earlierState) get(t *testing.T, c *crannog.Client, id string) *crannog.Sandbox {
	t.Helper()
	sb, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("get the sandbox %s: %v\n%s", id, err, p.server.Stderr())
	}
	return sb
}

// checkListed checks that sandboxes, snapshots, keys and the console's session are unchanged.
func (p *earlierState) checkListed(t *testing.T, c *crannog.Client) {
	for id, was := range p.listed {
		is := p.get(t, c, id).Info()
		if is.State != was.State || is.Name != was.Name || is.Origin != was.Origin || is.At != was.At || is.Workspace != was.Workspace ||
			is.Engine != was.Engine || !is.StartedAt.Equal(was.StartedAt) || !maps.Equal(is.Metadata, was.Metadata) {
			t.Errorf("the sandbox was %+v and is %+v", was, is)
		}
	}
	if out := must(t, program, p.state, p.dir, "ls", "--all", "--json"); !strings.Contains(out, p.ended) {
		t.Errorf("the ended sandbox %s is not listed: %s", p.ended, out)
	}
	snapshots, err := c.Snapshots(t.Context(), crannog.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, s := range snapshots {
		ids = append(ids, s.ID)
	}
	if !slices.Contains(ids, p.whole) || !slices.Contains(ids, p.flat) || !slices.Contains(ids, p.plain) {
		t.Errorf("the snapshots are %v", ids)
	}
	other, err := crannog.New(crannog.URL(p.server.URL), crannog.Key(p.key))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Snapshots(t.Context(), crannog.SnapshotOptions{}); err != nil {
		t.Errorf("a request with the earlier key: %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.server.URL+"/console/api/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(p.cookie)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "Ann") {
		t.Errorf("the console's session: %s %s %v", res.Status, text, err)
	}
	for _, name := range []string{"key-of-before", "agent-of-before"} {
		if out := must(t, program, p.state, p.dir, "key", "ls"); !strings.Contains(out, name) {
			t.Errorf("the list of keys lacks %s: %s", name, out)
		}
	}
}

// checkAuditLog verifies the audit log, old entries and new ones, also against earlier signatures.
func (p *earlierState) checkAuditLog(t *testing.T) {
	t.Helper()
	must(t, program, p.state, p.dir, "audit", "verify")
	must(t, program, p.state, p.dir, "audit", "verify", "--against", p.checkpoint)
}

// checkApprovals checks approval requests of the earlier version, and approves the pending one.
func (p *earlierState) checkApprovals(t *testing.T, c *crannog.Client) {
	a, err := c.Approval(t.Context(), p.approved)
	if err != nil || a.State != "approved" || len(a.Votes) != 1 {
		t.Errorf("the approved request: %+v %v", a, err)
	}
	a, err = c.Approval(t.Context(), p.pending)
	if err != nil || a.State != "pending" {
		t.Errorf("the pending request: %+v %v", a, err)
	}
	if a, err = c.Approve(t.Context(), p.pending, "still", false); err != nil || a.State != "approved" {
		t.Errorf("the answer to the pending request: %+v %v", a, err)
	}
}

// checkSecrets decrypts each secret by rotating the key.
func (p *earlierState) checkSecrets(t *testing.T, c *crannog.Client) {
	t.Helper()
	list, err := c.Secrets(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "TOKEN" {
		t.Errorf("the secrets: %+v %v", list, err)
	}
	if _, err := c.RotateSecretsKey(t.Context()); err != nil {
		t.Errorf("decrypt the secrets: %v", err)
	}
}

// checkInjection checks that the gateway sets the secret on requests: of the running sandbox, which
// still uses the earlier version's gateway, of the same sandbox after a pause, and of a new one.
func (p *earlierState) checkInjection(t *testing.T, c *crannog.Client) {
	sb := p.get(t, c, p.sends)
	requireSecretSent(t, "a sandbox of the earlier build", sb)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatalf("pause the sandbox: %v\n%s", err, p.server.Stderr())
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatalf("resume the sandbox: %v\n%s", err, p.server.Stderr())
	}
	requireSecretSent(t, "a sandbox of the earlier build, resumed", sb)
	newSandbox, err := c.Create(t.Context(), crannog.Policy(sendingPolicy), crannog.Timeout(life))
	if err != nil {
		t.Fatalf("create a sandbox whose policy binds the secret: %v\n%s", err, p.server.Stderr())
	}
	requireSecretSent(t, "a new sandbox", newSandbox)
}

// checkStrictest resumes a sandbox of the strictest level, whose memory the earlier version saved.
// Its walls must be those of this version.
func (p *earlierState) checkStrictest(t *testing.T, c *crannog.Client) {
	sb := p.get(t, c, p.strict)
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatalf("resume of a strict sandbox: %v\n%s", err, p.server.Stderr())
	}
	if n := increment(t, sb); n != 2 {
		t.Errorf("the strict sandbox counted to %d", n)
	}
	if got := testWalls(t, sb); got != strictWalls {
		t.Errorf("the walls of a strict sandbox: got\n%s", got)
	}
	sb = p.get(t, c, p.strict)
	for _, check := range sb.Info().Effective.Checks {
		if !check.Holds {
			t.Errorf("the check failed in a strict sandbox: %s", check.Check)
		}
	}
}

// checkRunning uses the sandboxes that the earlier version started and this one adopted.
func (p *earlierState) checkRunning(t *testing.T, c *crannog.Client) {
	sb := p.get(t, c, p.runs)
	if n := increment(t, sb); n != p.counted+1 {
		t.Errorf("the program counted to %d, after %d", n, p.counted)
	}
	forks, err := sb.Fork(t.Context(), api.CreateFork{})
	if err != nil {
		t.Errorf("fork of a sandbox of the earlier build: %v\n%s", err, p.server.Stderr())
	} else if n := increment(t, forks[0]); n != p.counted+2 {
		t.Errorf("the copy counted to %d", n)
	}
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatalf("pause of a sandbox of the earlier build: %v\n%s", err, p.server.Stderr())
	}
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Errorf("resume of a sandbox that this version paused: %v\n%s", err, p.server.Stderr())
		return
	}
	if n := increment(t, sb); n != p.counted+2 {
		t.Errorf("the program counted to %d after a pause", n)
	}
}

// checkSaved resumes memory and files that the earlier version saved. tests/crash covers memory of
// another version of gVisor, which is refused.
func (p *earlierState) checkSaved(t *testing.T, c *crannog.Client) {
	ctx := t.Context()
	paused := p.get(t, c, p.paused)
	if err := paused.Resume(ctx, life); err != nil {
		t.Errorf("resume with memory: %v\n%s", err, p.server.Stderr())
	} else if n := increment(t, paused); n != 2 {
		t.Errorf("the paused program counted to %d", n)
	}
	files := p.get(t, c, p.files)
	if err := files.ResumeFiles(ctx, life); err != nil {
		t.Errorf("resume only the files of a state with memory: %v\n%s", err, p.server.Stderr())
	} else if got := output(t, files, "cat /tmp/count; pgrep -f '^python3 /tmp/count' || echo none"); got != "1none" {
		t.Errorf("the files of a state with memory: got %q", got)
	}
	booted := p.get(t, c, p.booted)
	if err := booted.Resume(ctx, life); err != nil {
		t.Errorf("resume of files: %v\n%s", err, p.server.Stderr())
	} else if got := output(t, booted, "ls /tmp/count.py"); got != "/tmp/count.py" {
		t.Errorf("the files of a paused sandbox: got %q, want /tmp/count.py", got)
	}
	fromFlat, err := c.Create(ctx, crannog.Template(p.flat), crannog.Timeout(life))
	if err != nil {
		t.Errorf("a sandbox of a snapshot of files: %v\n%s", err, p.server.Stderr())
	} else if got := output(t, fromFlat, "cat /workspace/new.txt /tmp/count"); got != "new\n1" {
		t.Errorf("the snapshot of files: got %q", got)
	}
	fromWhole, err := c.Create(ctx, crannog.Template(p.whole), crannog.Timeout(life))
	if err != nil {
		t.Errorf("a sandbox of a snapshot with memory and hidden files: %v\n%s", err, p.server.Stderr())
	} else if n, got := increment(t, fromWhole), output(t, fromWhole, "cat /workspace/new.txt; cat /workspace/.env; cat /workspace/.envrc"); n != 2 || got != "new\nprotected" {
		t.Errorf("the program of the snapshot counted to %d, and its files are %q", n, got)
	}
	// The snapshot's memory contains the hidden file, so a policy that shows it must be refused.
	var e *crannog.Error
	if _, err := c.Create(ctx, crannog.Template(p.whole), crannog.Timeout(life), crannog.Policy(readingPolicy)); !errors.As(err, &e) || e.Code != "snapshot_policy" {
		t.Errorf("a sandbox whose policy shows the snapshot's hidden file: %v", err)
	}
	// Roll back to the same memory, in place.
	runs := p.get(t, c, p.runs)
	if err := runs.Rollback(ctx, p.whole); err != nil {
		t.Errorf("rollback to memory of the earlier build: %v\n%s", err, p.server.Stderr())
	} else if p.counted = increment(t, runs); p.counted != 2 {
		t.Errorf("the program counted to %d after a rollback", p.counted)
	}
	fromPlain, err := c.Create(ctx, crannog.Template(p.plain), crannog.Timeout(life))
	if err != nil {
		t.Errorf("a sandbox of a snapshot with memory: %v\n%s", err, p.server.Stderr())
	} else if n := increment(t, fromPlain); n != 2 {
		t.Errorf("the program of the snapshot counted to %d", n)
	}
}

// checkChanges applies a sandbox's changes, and reads what an ended run left.
func (p *earlierState) checkChanges(t *testing.T, c *crannog.Client) {
	sb := p.get(t, c, p.runs)
	list, err := sb.Changes(t.Context(), crannog.ChangesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string][]string{}
	for _, change := range list.Changes {
		flags[change.Path] = change.Flags
	}
	if len(flags) != 3 || flags[".env"] != nil || !slices.Contains(flags["leaks.txt"], "masked") {
		t.Errorf("the changes are %v", flags)
	}
	must(t, program, p.state, p.dir, "apply", "--yes", p.runs)
	for name, want := range map[string]string{"changed.txt": "after\n", "new.txt": "new\n", "kept.txt": "before\n"} {
		if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != want {
			t.Errorf("the applied file %s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(p.dir, "leaks.txt")); err != nil || strings.Contains(string(got), secretValue) {
		t.Errorf("an applied file contains the secret: %q %v", got, err)
	}
	keptRecordings, err := c.KeptRecordings(t.Context())
	if err != nil || len(keptRecordings) != 1 {
		t.Fatalf("the recordings of the run: %+v %v", keptRecordings, err)
	}
	records, err := c.RecordingsOf(t.Context(), keptRecordings[0].ID)
	if err != nil || len(records) == 0 {
		t.Fatalf("the commands of the run: %+v %v", records, err)
	}
	r, err := c.RecordingOf(t.Context(), keptRecordings[0].ID, records[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || !strings.Contains(string(text), "printed") {
		t.Errorf("the recording: got %q, %v", text, err)
	}
	retained, err := c.KeptChanges(t.Context())
	if err != nil || len(retained) != 1 || retained[0].Files != 1 {
		t.Fatalf("the retained changes: %+v %v", retained, err)
	}
	must(t, program, p.state, p.dir, "apply", "--yes", retained[0].ID)
	if got, err := os.ReadFile(filepath.Join(p.dir, "of-run.txt")); err != nil || string(got) != "run\n" {
		t.Errorf("the retained change: %q %v", got, err)
	}
}

// checkDowngradeRefused checks that the earlier version refuses this version's state with a reason,
// and changes nothing.
func (p *earlierState) checkDowngradeRefused(t *testing.T, old string) {
	p.server.Stop(t)
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"ls"}, {"run", "--no-workspace", "--", "true"}} {
		_, stderr, err := command(t, old, p.state, p.dir, args...)
		if err == nil || !strings.Contains(stderr, "state_too_new") || !strings.Contains(stderr, "later version") {
			t.Errorf("the earlier version on this state, %q: %v %s", args, err, stderr)
		}
	}
	p.server = servetest.Start(t, program, p.state)
	sb := p.get(t, p.server.Local(t), p.runs)
	if n := increment(t, sb); n != p.counted+1 {
		t.Errorf("the program counted to %d", n)
	}
	p.checkAuditLog(t)
}
