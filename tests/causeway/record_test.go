package causeway_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// openAuditLog opens the audit log of a state directory, like another process.
func openAuditLog(t testing.TB, state string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(state, "record"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// P33: a script with known counts leaves exactly those entries, and the audit log verifies.
func TestAuditLogHasKnownCounts(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.counts.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.counts.test, rules: [{methods: [GET], do: allow}]}]}\n")
	id := b.ID()
	b.must("i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done")
	b.must("i=0; while [ $i -lt 2000 ]; do echo $i > /tmp/count$i; i=$((i+1)); done")
	if out, code := b.exec("", `
import ssl, urllib.request
context = ssl.create_default_context()
for i in range(100):
    urllib.request.urlopen('https://api.counts.test/%d' % i, context=context).read()
print('asked')
`, "python3", "-B", "-"); code != 0 || out != "asked" {
		t.Fatalf("run the script: got exit code %d: %s", code, out)
	}
	b.end()

	l := openAuditLog(t, a.state)
	programs, files, flows, kinds := map[string]int{}, map[string]int{}, map[string]int{}, map[audit.Kind]int{}
	err := l.Read(t.Context(), audit.Filter{Sandbox: id}, false, func(e audit.Entry) error {
		kinds[e.Kind]++
		switch e.Kind {
		case audit.Exec:
			var x ingest.Exec
			if err := json.Unmarshal(e.Data, &x); err != nil {
				return err
			}
			programs[filepath.Base(x.Program)]++
		case audit.File:
			var f ingest.File
			if err := json.Unmarshal(e.Data, &f); err != nil {
				return err
			}
			if strings.HasPrefix(f.Path, "/tmp/count") {
				if f.Op != "created" || f.Sum == "" || f.Size < 2 {
					t.Errorf("the entry of a file: got %+v", f)
				}
				files[f.Path]++
			}
		case audit.Flow:
			var r egress.Record
			if err := json.Unmarshal(e.Data, &r); err != nil {
				return err
			}
			if r.Kind == "http" && !r.Begins {
				flows[r.Path]++
			}
		case audit.Gap:
			t.Errorf("the audit log has a gap: %s", e.Data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(up.seen()) != 100 || len(flows) != 100 || sum(flows) != 100 {
		t.Errorf("got %d requests at the server and %d in the audit log, of %d paths, want 100 of each", len(up.seen()), sum(flows), len(flows))
	}
	if len(files) != 2000 || sum(files) != 2000 {
		t.Errorf("got %d changes of %d files, want 2000 of each", sum(files), len(files))
	}
	python := 0
	maps.DeleteFunc(programs, func(name string, n int) bool {
		if strings.HasPrefix(name, "python3") {
			python += n
		}
		return strings.HasPrefix(name, "python3")
	})
	if want := map[string]int{"true": 1000, "dash": 2}; !maps.Equal(programs, want) || python != 1 {
		t.Errorf("executed programs: got %v and %d of Python, want %v and 1", programs, python, want)
	}
	if kinds[audit.Exit] != kinds[audit.Exec] || kinds[audit.SandboxStarted] != 1 || kinds[audit.SandboxEnded] != 1 {
		t.Errorf("entries by kind: got %v, want as many exits as starts", kinds)
	}
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("verify the audit log: got %+v, %v", v, err)
	}
}

func sum(m map[string]int) (n int) {
	for _, one := range m {
		n += one
	}
	return n
}

// P34: a secret's value is nowhere in the audit log, even if a caller or a program puts it where
// programs are observed. It is in no event file once the sandbox has ended. Its replacement is in
// the log, so the search would find the value.
func TestSecretIsNotInAuditLog(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.p34.test")
	a.storeSecret(t, "P34", canary)
	b := a.newSandbox(t, boundPolicy("P34", "api.p34.test"))
	b.must("curl -sS -m 300 https://api.p34.test/")
	if len(up.seen()) != 1 || up.seen()[0].auth() != "Bearer "+canary {
		t.Fatalf("control: the secret is not in use: %+v", up.seen())
	}
	// A caller passes the value in every place that an entry could show.
	for _, cmd := range [][]string{
		{"echo", canary}, {"sh", "-c", "true " + canary}, {"env", "NAME=" + canary, "true"},
		{"sh", "-c", "mkdir -p /tmp/" + canary + "; echo " + canary + " > /tmp/" + canary + "/" + canary + "; cd /tmp/" + canary + "; ln -s " + canary + " link"},
		{"curl", "-sS", "-m", "10", "-o", "/dev/null", "https://api.p34.test/" + canary + "?q=" + canary},
	} {
		if res, err := b.Exec(t.Context(), api.Exec{Cmd: cmd, Env: map[string]string{"V": canary}, TimeoutSeconds: 1200}); err != nil || strings.Contains(res.Stdout, canary) {
			t.Errorf("run %q: the output shows the secret, or %v", cmd, err)
		}
	}
	id := b.ID()
	b.end()
	for _, dir := range []string{"record", "events", "recordings"} {
		if where := hosttest.Holding(t, filepath.Join(a.state, dir), canary); len(where) > 0 {
			t.Errorf("the value is in %s", where)
		}
	}
	seen := 0
	err := openAuditLog(t, a.state).Read(t.Context(), audit.Filter{Sandbox: id}, false, func(e audit.Entry) error {
		if bytes.Contains(e.Data, []byte("[redacted:P34]")) {
			seen++
		}
		return nil
	})
	if err != nil || seen < 6 {
		t.Errorf("got %d entries with redacted values, %v, want at least 6", seen, err)
	}
}
