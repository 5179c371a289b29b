package recording

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/fault"
)

// Retained recordings outlive their sandbox until they expire. Others are removed with it.
func TestRetainedRecordingsOutliveSandbox(t *testing.T) {
	var steps []string
	s := New(Options{Dir: filepath.Join(t.TempDir(), "r"), Step: func(name string) { steps = append(steps, name) }})
	now := time.Now().Round(0)
	later := now.Add(time.Hour)
	if some, err := s.Retain(Retained{Sandbox: "none", ExpiresAt: later}); some || err != nil {
		t.Errorf("Retain of a sandbox without commands: got %t, %v", some, err)
	}
	for i, id := range []string{"old", "new", "gone"} {
		record(t, s, id, "hello")
		k := Retained{Sandbox: id, Workspace: "/w", TakenAt: now.Add(time.Duration(i) * time.Minute), ExpiresAt: later}
		if id == "gone" {
			k.ExpiresAt = now.Add(-time.Second)
		}
		if some, err := s.Retain(k); !some || err != nil {
			t.Fatalf("Retain of %s: got %t, %v", id, some, err)
		}
	}
	if !slices.Equal(steps[:2], []string{"written", "kept"}) {
		t.Errorf("steps of Retain: got %q", steps)
	}
	if k, ok := s.Retained("old"); !ok || k.Workspace != "/w" || !k.ExpiresAt.Equal(later) {
		t.Errorf("Retained: got %+v, %t", k, ok)
	}
	if k, ok := s.Retained("gone"); ok || k.Sandbox != "gone" {
		t.Errorf("Retained of expired recordings: got %+v, %t", k, ok)
	}
	list, err := s.ListRetained()
	if err != nil || len(list) != 3 || list[0].Sandbox != "gone" || list[2].Sandbox != "old" {
		t.Errorf("ListRetained: got %+v, %v, want 3, from gone to old", list, err)
	}
	if err := errors.Join(s.Discard("old"), s.Discard("old"), s.Discard("none")); err != nil {
		t.Error(err)
	}
	if _, ok := s.Retained("old"); ok {
		t.Error("the recordings are still retained after Discard")
	}
	if got := output(t, s, "old", 1); got != "hello" {
		t.Errorf("recording after Discard: got %q, want hello", got)
	}
}

// An invalid retainedFile retains nothing, and never the recordings of another sandbox.
func TestInvalidRetainedFileIsIgnored(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	record(t, s, "box", "x")
	const good = `{"sandbox":"box","taken_at":"2020-01-01T00:00:00Z","expires_at":"2999-01-01T00:00:00Z"}`
	for text, want := range map[string]bool{
		good: true, "": false, "{": false, strings.Replace(good, "box", "other", 1): false, strings.Replace(good, "{", `{"more":1,`, 1): false,
		strings.Replace(good, "{", "{"+strings.Repeat(" ", maxRetained), 1): false,
	} {
		if err := os.WriteFile(filepath.Join(dir, "box", retainedFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Retained("box"); ok != want {
			t.Errorf("retainedFile %.80q: got %t, want %t", text, ok, want)
		}
	}
	path := filepath.Join(dir, "box", retainedFile)
	if err := errors.Join(os.Remove(path), os.WriteFile(filepath.Join(dir, "good"), []byte(good), 0o600), os.Symlink(filepath.Join(dir, "good"), path)); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Retained("box"); ok {
		t.Error("Retained followed a symbolic link")
	}
	for _, id := range []string{"", "..", "a/b"} {
		_, retainErr := s.Retain(Retained{Sandbox: id})
		_, ok := s.Retained(id)
		if retainErr == nil || s.Discard(id) == nil || ok {
			t.Errorf("the invalid ID %q was accepted", id)
		}
	}
}

// A followed recording continues until its command ends, whether it has a file of its own or is
// short and was in memory at first.
func TestFollowReadsUntilCommandEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Dir: dir})
		for name, pause := range map[string]time.Duration{"in a file": 2 * flushAfter, "in memory": 0} {
			r, err := s.Begin("box", Head{Started: time.Now(), Command: []string{"x"}, TTY: true, Cols: 80, Rows: 24})
			if err != nil {
				t.Fatal(err)
			}
			r.Output(1, []byte("one "))
			time.Sleep(pause)
			in, err := s.Follow(t.Context(), "box", r.N())
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan []byte, 1)
			go func() {
				data, err := io.ReadAll(in)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got <- data
			}()
			synctest.Wait()
			r.Output(1, []byte("two"))
			r.Resize(100, 30)
			r.Mark("here")
			time.Sleep(3 * pause)
			select {
			case data := <-got:
				t.Fatalf("%s: Follow ended before its command: %q", name, data)
			default:
			}
			if err := r.End(Tail{Ended: time.Now(), Exit: exitZero()}); err != nil {
				t.Fatal(err)
			}
			data := string(<-got)
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			complete := readRecording(t, s, r.N())
			if data != complete || !strings.Contains(data, "two") || !strings.Contains(data, "100x30") || !strings.Contains(data, "here") || r.Truncated() {
				t.Errorf("%s: Follow got %q, want %q", name, data, complete)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// readRecording returns a complete recording.
func readRecording(t *testing.T, s *Store, n int) string {
	t.Helper()
	f, err := s.Open("box", n)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFollowEndsWithReader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Dir: dir})
		if _, err := s.Follow(t.Context(), "box", 1); fault.KindOf(err) != fault.NotFound {
			t.Errorf("Follow without a recording: got %v, want NotFound", err)
		}
		if _, err := s.Follow(t.Context(), "..", 1); err == nil {
			t.Error("Follow accepted the ID \"..\"")
		}
		r, err := s.Begin("box", Head{Started: time.Now(), Command: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		in, err := s.Follow(ctx, "box", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, cancel)
		if _, err := io.ReadAll(in); !errors.Is(err, context.Canceled) {
			t.Errorf("reading after cancel: got %v, want Canceled", err)
		}
		if err := errors.Join(in.Close(), r.End(Tail{Ended: time.Now()}), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

// Output beyond the limit of one recording is omitted, and Truncated is set in the list.
func TestTruncatedRecordingIsMarked(t *testing.T) {
	s := New(Options{Dir: t.TempDir(), Bound: 4 << 10})
	r, err := s.Begin("box", Head{Started: time.Now(), Command: []string{"yes"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		r.Output(1, []byte(strings.Repeat("y\n", 100)))
	}
	if !r.Truncated() {
		t.Error("Truncated is false while the command runs")
	}
	if err := r.End(Tail{Ended: time.Now(), Exit: exitZero()}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Newest("box", 1)
	if err != nil || len(list) != 1 || !list[0].Truncated || list[0].Bytes > 5<<10 {
		t.Errorf("Newest: got %+v, %v, want one truncated recording of at most 5 KiB", list, err)
	}
	if text := readRecording(t, s, 1); len(text) > 8<<10 || !strings.Contains(text, string(asciicast.Exit)) {
		t.Errorf("recording of %d bytes: %.200s", len(text), text)
	}
}
