// Package record_test uses the real program, and compares the audit log with what was done, also if
// the server is killed or the disk is full.
package record_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// auditSummary counts the entries of the audit log.
type auditSummary struct {
	kinds    map[string]map[audit.Kind]int // by sandbox
	programs map[string]map[string]int     // executed programs, by sandbox and base name
	files    map[string]map[string]int     // file changes, by sandbox and path
	actions  map[string]int                // successful actions
	gaps     []string
}

// readAuditLog reads the audit log of a state directory, and checks that it verifies and that the
// entries of each source are in order.
func readAuditLog(t *testing.T, state string) auditSummary {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(state, "record"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	out := auditSummary{
		kinds: map[string]map[audit.Kind]int{}, programs: map[string]map[string]int{}, files: map[string]map[string]int{}, actions: map[string]int{},
	}
	lastPosition := make(map[string]uint64)
	err = l.Read(t.Context(), audit.Filter{}, false, func(e audit.Entry) error {
		if out.kinds[e.Sandbox] == nil {
			out.kinds[e.Sandbox], out.programs[e.Sandbox], out.files[e.Sandbox] = map[audit.Kind]int{}, map[string]int{}, map[string]int{}
		}
		if e.Source != "" && e.At <= lastPosition[e.Source] {
			t.Errorf("%s: position %d after %d", e.Source, e.At, lastPosition[e.Source])
		}
		lastPosition[e.Source] = e.At
		out.kinds[e.Sandbox][e.Kind]++
		return out.add(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("verify the audit log: got %+v, %v", v, err)
	}
	return out
}

// add counts an entry.
func (o *auditSummary) add(e audit.Entry) error {
	switch e.Kind {
	case audit.Exec:
		var x ingest.Exec
		if err := json.Unmarshal(e.Data, &x); err != nil {
			return err
		}
		o.programs[e.Sandbox][filepath.Base(x.Program)]++
	case audit.File:
		var f ingest.File
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return err
		}
		o.files[e.Sandbox][f.Path]++
	case audit.Action:
		var a payload.Action
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		if a.Outcome == "ok" {
			o.actions[a.Do]++
		}
	case audit.Gap:
		o.gaps = append(o.gaps, string(e.Data))
	default:
	}
	return nil
}

// countChanges returns the number of changes of files with a path prefix, and the number of these
// files.
func (o *auditSummary) countChanges(id, prefix string) (changes, files int) {
	for path, n := range o.files[id] {
		if strings.HasPrefix(path, prefix) {
			changes += n
			files++
		}
	}
	return changes, files
}

// must runs a shell line that must succeed, and returns its output.
func must(t *testing.T, sb *crannog.Sandbox, line string) string {
	t.Helper()
	out, err := sb.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// kill removes a sandbox.
func kill(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	if err := sb.Kill(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// runProgram runs a command of the program, which must succeed.
func runProgram(t *testing.T, state string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("crannog %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
