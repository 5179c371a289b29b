package recording

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/fault"
)

// exitZero returns the exit code of a successful command.
func exitZero() *int { return new(int) }

// record records one command and returns its number.
func record(t testing.TB, s *Store, sandbox, output string) int {
	t.Helper()
	recording, err := s.Begin(sandbox, Head{How: "start", Command: []string{"echo", "it's"}, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	recording.Output(1, []byte(output))
	if err := recording.End(Tail{Ended: time.Now(), Exit: exitZero()}); err != nil {
		t.Fatal(err)
	}
	return recording.N()
}

// output returns the recorded output of a command.
func output(t testing.TB, s *Store, sandbox string, n int) (text string) {
	t.Helper()
	f, err := s.Open(sandbox, n)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := asciicast.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Code == asciicast.Output {
			text += e.Data
		}
	}
}

func TestRecordAndList(t *testing.T) {
	s := New(Options{Dir: filepath.Join(t.TempDir(), "recordings")})
	if list, err := s.Newest("box1", 10); err != nil || len(list) != 0 {
		t.Fatalf("Newest without recordings: got %v, %v", list, err)
	}
	running, err := s.Begin("box1", Head{How: "terminal", Command: []string{"bash", "-l"}, Started: time.Unix(1700000000, 0).UTC(), TTY: true, Cols: 100, Rows: 30, Term: "xterm"})
	if err != nil {
		t.Fatal(err)
	}
	running.Output(3, []byte("$ "))
	running.sync()
	if n := record(t, s, "box1", "hello\n"); n != 2 {
		t.Errorf("number of the second command: got %d, want 2", n)
	}
	list, err := s.Newest("box1", 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("Newest: got %v, %v, want 2 commands", list, err)
	}
	if a := list[0]; a.N != 1 || a.How != "terminal" || !a.TTY || !slices.Equal(a.Command, []string{"bash", "-l"}) || a.Started.Unix() != 1700000000 || !a.Ended.IsZero() || a.Exit != nil {
		t.Errorf("running command: got %+v", a)
	}
	if b := list[1]; b.N != 2 || b.Exit == nil || b.Ended.IsZero() || b.Bytes == 0 || b.Truncated {
		t.Errorf("ended command: got %+v", b)
	}
	if list, _ := s.Newest("box1", 1); len(list) != 1 || list[0].N != 2 {
		t.Errorf("Newest with limit 1: got %v, want command 2", list)
	}
	if got := output(t, s, "box1", 2); got != "hello\n" {
		t.Errorf("output of command 2: got %q, want hello", got)
	}
	if err := running.End(Tail{Ended: time.Now(), Lost: true}); err != nil {
		t.Error(err)
	}
	running.Output(3, []byte("after the end"))
	if list, _ := s.Newest("box1", 9); !list[0].Lost || list[0].Exit != nil {
		t.Errorf("lost command: got %+v", list[0])
	}
	if list, _ := s.Newest("box1", 9); list[0].Dropped || list[1].Dropped {
		t.Errorf("existing recordings are listed as dropped: %+v", list)
	}
	f, err := s.Open("box1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err := asciicast.NewReader(f); err != nil || r.Header().Command != "bash -l" || r.Header().Cols != 100 || r.Header().Type != "xterm" {
		t.Errorf("header of the recording: got reader %v, %v, want the command bash -l on an xterm with 100 columns", r, err)
	}
	if ids, err := s.List(); err != nil || !slices.Equal(ids, []string{"box1"}) {
		t.Errorf("List: got %v, %v, want box1", ids, err)
	}
	if _, err := s.Open("box1", 3); fault.CodeOf(err) != "recording_not_found" {
		t.Error(err)
	}
	if err := s.Remove("box1"); err != nil {
		t.Error(err)
	}
	if ids, _ := s.List(); len(ids) > 0 {
		t.Errorf("List after Remove: got %v, want none", ids)
	}
	if n := record(t, s, "box1", ""); n != 1 {
		t.Errorf("number after Remove: got %d, want 1", n)
	}
}

// A command that ends after its sandbox was removed does not create files again.
func TestEndAfterRemoveWritesNothing(t *testing.T) {
	s := New(Options{Dir: t.TempDir()})
	recording, err := s.Begin("box1", Head{Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	recording.Output(1, []byte(strings.Repeat("x", 2*maxShort)))
	if err := recording.End(Tail{Ended: time.Now(), Lost: true}); err != nil {
		t.Error(err)
	}
	if ids, err := s.List(); err != nil || len(ids) > 0 {
		t.Errorf("List after Remove: got %v, %v, want none", ids, err)
	}
}

// A command that ends after its sandbox was removed creates no files, even if the sandbox's files
// were closed because many other sandboxes ran commands.
func TestEndAfterRemoveWithClosedFilesWritesNothing(t *testing.T) {
	s := New(Options{Dir: t.TempDir()})
	recording, err := s.Begin("box1", Head{Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 * maxOpen {
		record(t, s, "other"+strconv.Itoa(i), "x")
	}
	if err := s.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	if err := recording.End(Tail{Ended: time.Now(), Lost: true}); err != nil {
		t.Error(err)
	}
	if ids, err := s.List(); err != nil || slices.Contains(ids, "box1") {
		t.Errorf("the end of the command created the directory again: %v, %v", ids, err)
	}
}

// Numbers continue after a restart, and several processes never use the same number.
func TestNumbersAreUniqueAcrossProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := New(Options{Dir: dir}), New(Options{Dir: dir})
	var mu sync.Mutex
	var all []int
	var group sync.WaitGroup
	for _, s := range []*Store{a, b, a, b} {
		group.Go(func() {
			for range 50 {
				n := record(t, s, "box1", "x")
				mu.Lock()
				all = append(all, n)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(all)
	for i, n := range all {
		if n != i+1 {
			t.Fatalf("numbers: got %v, want 1 to %d", all, len(all))
		}
	}
	if n := record(t, New(Options{Dir: dir}), "box1", "x"); n != 201 {
		t.Errorf("number after a restart: got %d, want 201", n)
	}
	for _, id := range []string{"", "..", "a/b", "A", "box\x00"} {
		if _, err := a.Begin(id, Head{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Begin with the ID %q: got %v, want Invalid", id, err)
		}
		if err := a.Remove(id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Remove with the ID %q: got %v, want Invalid", id, err)
		}
	}
}

// files returns the paths of the recordings' own files and of the packs.
func files(t testing.TB, dir string) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.cast", "reel.*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	return list
}

// All recordings together stay within the budget: the oldest are dropped and listed as such, and no
// number is reused, also not by another process.
func TestBudgetDropsOldestRecordings(t *testing.T) {
	dir := t.TempDir()
	const budget = 8 << 20
	s := New(Options{Dir: dir, Budget: budget})
	long := strings.Repeat("x", 300<<10)
	for i := range 100 {
		text := long
		if i%2 == 0 {
			text = long[:40<<10]
		}
		record(t, s, "box"+strconv.Itoa(i%3), text)
		if _, total, err := s.listRemovable(); err != nil || total > budget+budget/share*2 {
			t.Fatalf("after %d recordings: %d bytes on disk, %v", i+1, total, err)
		}
	}
	list, err := s.Newest("box1", 1000)
	if err != nil || len(list) != 33 || !list[0].Dropped || list[32].Dropped {
		t.Fatalf("Newest: got %+v, %v, want 33 commands, the first dropped and the last not", list, err)
	}
	if _, err := s.Open("box1", 1); fault.CodeOf(err) != "recording_not_found" {
		t.Error(err)
	}
	if got := output(t, s, "box1", 33); len(got) < 40<<10 {
		t.Errorf("newest recording: got %d bytes, want at least 40 KiB", len(got))
	}
	// After all files of a sandbox were removed, later commands are recorded in new files.
	for _, f := range files(t, filepath.Join(dir, "box1")) {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	for _, store := range []*Store{s, New(Options{Dir: dir}), s} {
		n := record(t, store, "box1", "new")
		if n < 34 || output(t, s, "box1", n) != "new" {
			t.Errorf("command after its files were removed: got number %d, want at least 34 with the output new", n)
		}
	}
	if list, _ = s.Newest("box1", 1000); !list[32].Dropped || list[33].Dropped {
		t.Errorf("commands from the 31st on: got %+v, want the 33rd dropped and the 34th not", list[30:])
	}
	// Output of short processes counts too.
	for range 60 {
		short := New(Options{Dir: dir, Budget: budget})
		record(t, short, "box2", long)
		if err := short.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, total, _ := s.listRemovable(); total > budget+budget/share*2 {
		t.Errorf("got %d bytes on disk, want about %d", total, budget)
	}
	if err := New(Options{Dir: filepath.Join(dir, "absent")}).Sweep(); err != nil {
		t.Error(err)
	}
}

// A large index loses its older half while several processes use it.
func TestLargeIndexIsHalved(t *testing.T) {
	dir := t.TempDir()
	a, b := New(Options{Dir: dir}), New(Options{Dir: dir})
	record(t, a, "box1", "")
	record(t, b, "box1", "")
	f, err := os.OpenFile(filepath.Join(dir, "box1", indexFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	filler := strings.Repeat(strings.Repeat("x", 1023)+"\n", maxIndex>>10)
	if _, err := f.WriteString(filler + `{"n":41,"how":"start"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for i, s := range []*Store{a, b, a} {
		if n := record(t, s, "box1", "x"); n != 42+i || output(t, b, "box1", n) != "x" {
			t.Errorf("command with a halved index: got number %d, want %d with the output x", n, 42+i)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "box1", indexFile))
	if err != nil || info.Size() > maxIndex/2+4096 {
		t.Errorf("index: got %d bytes, %v, want at most half of maxIndex", info.Size(), err)
	}
}

// Output is on the disk after flushAfter, even if no more output follows. A command that ends
// sooner gets no file of its own.
func TestOutputIsFlushed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Dir: dir})
		record(t, s, "box1", "short")
		recording, err := s.Begin("box1", Head{Started: time.Now(), Command: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		size := func() int64 {
			info, err := os.Stat(filepath.Join(dir, "box1", "2.cast"))
			if err != nil {
				return -1
			}
			return info.Size()
		}
		if size() >= 0 {
			t.Error("the recording has a file before flushAfter")
		}
		if f, err := s.Open("box1", 2); err != nil {
			t.Error(err)
		} else if data, err := io.ReadAll(f); err != nil || len(data) > 0 || f.Close() != nil {
			t.Errorf("recording before any output: got %q, %v, want nothing", data, err)
		}
		time.Sleep(flushAfter)
		synctest.Wait()
		head := size()
		recording.Output(1, []byte("later"))
		time.Sleep(flushAfter)
		synctest.Wait()
		if head <= 0 || size() <= head {
			t.Errorf("size of the file: got %d, then %d bytes, want a header and then more", head, size())
		}
		if err := recording.End(Tail{Ended: time.Now()}); err != nil {
			t.Error(err)
		}
		if got := output(t, s, "box1", 2); got != "later" {
			t.Errorf("output of command 2: got %q, want later", got)
		}
		if f := files(t, filepath.Join(dir, "box1")); len(f) != 2 {
			t.Errorf("files: got %q, want one file and one pack", f)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRecordingStopsAtBound(t *testing.T) {
	s := New(Options{Dir: t.TempDir(), Bound: 64 << 10})
	n := record(t, s, "box1", strings.Repeat("x", 1<<20))
	list, err := s.Newest("box1", 1)
	if err != nil || !list[0].Truncated || list[0].Bytes > 64<<10 || list[0].Exit == nil {
		t.Fatalf("Newest: got %+v, %v, want a truncated recording of at most 64 KiB with an exit status", list, err)
	}
	if got := output(t, s, "box1", n); len(got) < 32<<10 || strings.Trim(got, "x") != "" {
		t.Errorf("truncated recording: got %d bytes, want at least 32 KiB of x", len(got))
	}
}

// If the write of an index was interrupted at any byte, its complete lines are read, and the next
// command gets a new number.
func TestInterruptedIndexKeepsCompleteLines(t *testing.T) {
	s := New(Options{Dir: t.TempDir()})
	record(t, s, "box1", "one")
	record(t, s, "box1", "two")
	path := filepath.Join(s.dir, "box1", indexFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := s.Newest("box1", 9)
		if err != nil {
			t.Fatal(err)
		}
		again := New(Options{Dir: s.dir})
		n := record(t, again, "box1", "after")
		if n != len(before)+1 || output(t, again, "box1", n) != "after" {
			t.Fatalf("index cut to %d bytes: number %d after %+v", cut, n, before)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// More sandboxes may be in use than files may be open.
func TestMoreSandboxesThanOpenFiles(t *testing.T) {
	s := New(Options{Dir: t.TempDir()})
	for i := range 2 * maxOpen {
		record(t, s, "box"+strconv.Itoa(i), "x")
	}
	if len(s.histories) > maxOpen {
		t.Errorf("%d histories are open, want at most %d", len(s.histories), maxOpen)
	}
	if n := record(t, s, "box0", "y"); n != 2 || output(t, s, "box0", 2) != "y" {
		t.Errorf("second command of the first sandbox: got number %d, want 2", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestQuoted(t *testing.T) {
	for want, argv := range map[string][]string{
		"": nil, "''": {""}, "echo hi": {"echo", "hi"}, `sh -c 'a b'`: {"sh", "-c", "a b"}, `'it'\''s'`: {"it's"},
	} {
		if got := quoted(argv); got != want {
			t.Errorf("quoted(%q): got %s, want %s", argv, got, want)
		}
	}
	if got := quoted([]string{strings.Repeat("é", maxQuoted)}); len(got) > maxQuoted+8 || !strings.HasSuffix(got, "…") {
		t.Errorf("quoted of a long argument: got %d bytes, want about %d and an ellipsis", len(got), maxQuoted)
	}
}

func BenchmarkCommand(b *testing.B) {
	s := New(Options{Dir: b.TempDir(), Budget: 1 << 40})
	line := fmt.Appendln(nil, "hello")
	for b.Loop() {
		recording, err := s.Begin("box1", Head{How: "start", Command: []string{"echo", "hello"}, Started: time.Now()})
		if err != nil {
			b.Fatal(err)
		}
		recording.Output(1, line)
		if err := recording.End(Tail{Ended: time.Now(), Exit: exitZero()}); err != nil {
			b.Fatal(err)
		}
	}
}
