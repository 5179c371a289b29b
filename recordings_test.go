package crannog

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/asciicast"
)

// readRecording reads a recording and returns its output and exit code.
func readRecording(t *testing.T, sb *Sandbox, id string) (text, exit string) {
	t.Helper()
	file, err := sb.Recording(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := asciicast.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text, exit
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e.Code {
		case asciicast.Output:
			text += e.Data
		case asciicast.Exit:
			exit = e.Data
		}
	}
}

// P35: the output of a command, a terminal or an interpreter cell can be read again.
func TestRecordings(t *testing.T) {
	sb := newSandbox(t)
	out, err := sb.CommandContext(t.Context(), "sh", "-c", "echo one; exit 5").Output()
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.ExitCode() != 5 || string(out) != "one\n" {
		t.Fatalf("Output: got %q, error %v", out, err)
	}
	if res, err := sb.Exec(t.Context(), api.Exec{Cmd: []string{"echo", "two"}}); err != nil || res.Stdout != "two\n" {
		t.Fatalf("Exec: got %+v, error %v", res, err)
	}
	tty := sb.CommandContext(t.Context(), "sh", "-c", "stty size; echo three")
	tty.TTY = &Size{Cols: 91, Rows: 31}
	if err := tty.Run(); err != nil {
		t.Fatal(err)
	}
	for _, err := range sb.RunCode(t.Context(), "echo four", Language("bash")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	list, err := sb.Recordings(t.Context())
	if err != nil || len(list) != 4 {
		t.Fatalf("Recordings: got %+v, error %v", list, err)
	}
	for i, want := range []struct {
		how, command, text, exit string
		tty                      bool
	}{
		{"start", "sh -c echo one; exit 5", "one\n", "5", false}, {"exec", "echo two", "two\n", "0", false},
		{"terminal", "sh -c stty size; echo three", "31 91\r\nthree\r\n", "0", true}, {"cell", "bash echo four", "four\n", "0", false},
	} {
		r := list[i]
		text, exit := readRecording(t, sb, r.ID)
		if r.How != want.how || strings.Join(r.Command, " ") != want.command || r.TTY != want.tty || r.ExitCode == nil || r.EndedAt.Before(r.StartedAt) ||
			r.Sandbox != sb.ID() || r.Lost || r.Truncated || r.Dropped || text != want.text || exit != want.exit {
			t.Errorf("recording %+v: got output %q, exit code %s", r, text, exit)
		}
	}
	old, err := sb.OldRecording(t.Context(), list[2].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if text, err := io.ReadAll(old); err != nil || !strings.HasPrefix(string(text), `{"version":2,"width":91,"height":31,`) {
		t.Errorf("OldRecording: got %s, error %v", text, err)
	}
	for id, code := range map[string]string{"99": "recording_not_found", "0": "invalid_request", "x": "invalid_request", "../logs": "invalid_request"} {
		if _, err := sb.Recording(t.Context(), id); Code(err) != code {
			t.Errorf("Recording(%s): error %v", id, err)
		}
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, _ := readRecording(t, sb, "1"); text != "one\n" {
		t.Errorf("after the end: %q", text)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Recording(t.Context(), "1"); Code(err) != "sandbox_not_found" {
		t.Errorf("after it was removed: %v", err)
	}
}

// The output of a sandbox's commands can be read after its end if its recordings are retained.
func TestKeepRecordings(t *testing.T) {
	sb := newSandbox(t)
	c := sb.client
	if kept, err := sb.KeepRecordings(t.Context()); err != nil || kept.ID != "" {
		t.Fatalf("KeepRecordings: got %+v, error %v", kept, err)
	}
	if res, err := sb.Exec(t.Context(), api.Exec{Cmd: []string{"echo", "stays"}}); err != nil || res.ExitCode != 0 {
		t.Fatalf("Exec: got %+v, error %v", res, err)
	}
	if kept, err := sb.KeepRecordings(t.Context()); err != nil || kept.ID != sb.ID() || kept.ExpiresAt.IsZero() {
		t.Fatalf("KeepRecordings: got %+v, error %v", kept, err)
	}
	// The first call ends the sandbox, the second removes it.
	for range 2 {
		if err := sb.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), sb.ID()); !errors.Is(err, ErrNotFound) {
		t.Fatalf("control: the sandbox is there: %v", err)
	}
	list, err := c.RecordingsOf(t.Context(), sb.ID())
	if err != nil || len(list) != 1 {
		t.Fatalf("RecordingsOf: got %+v, error %v", list, err)
	}
	if text, exit := readRecording(t, sb, list[0].ID); text != "stays\n" || exit != "0" {
		t.Errorf("retained recording: got output %q, exit code %q", text, exit)
	}
	if kept, err := c.KeptRecordings(t.Context()); err != nil || len(kept) != 1 || kept[0].ID != sb.ID() {
		t.Errorf("KeptRecordings: got %+v, error %v", kept, err)
	}
	if err := c.DiscardRecordings(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RecordingsOf(t.Context(), sb.ID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("RecordingsOf after DiscardRecordings: got %v, want ErrNotFound", err)
	}
}
