package gateway

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// reopen opens a flow file as a controller and then the process do.
func reopen(t *testing.T, file *os.File) *recorder {
	t.Helper()
	out, seq, err := openRecords(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRecorder("box1", out, seq)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func TestRecorderContinuesNumbering(t *testing.T) {
	dir := t.TempDir()
	file := recordFile(t, dir, "box1")
	for range 3 {
		r := reopen(t, file)
		var wait sync.WaitGroup
		for i := range 10 {
			wait.Go(func() {
				// The caller controls neither the sandbox's name nor the number.
				rec := egress.Record{Sandbox: "other", Seq: 999, Kind: egress.KindHTTP, Path: strings.Repeat("/x", i*100)}
				if err := r.Record(rec); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		r.close()
		if err := r.Record(egress.Record{}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("Record on a closed recorder: got %v, want Unavailable", err)
		}
		// A crash leaves the start of a line.
		if _, err := file.WriteString(`{"time":"2026`); err != nil {
			t.Fatal(err)
		}
	}
	reopen(t, file)
	if got := readRecords(t, dir, "box1"); len(got) != 30 {
		t.Errorf("%d flow entries, want 30", len(got))
	}
}

func TestRecorderRejectsLongEntry(t *testing.T) {
	file := recordFile(t, t.TempDir(), "box1")
	r := reopen(t, file)
	if err := r.Record(egress.Record{Path: strings.Repeat("x", maxRecord)}); err == nil {
		t.Error("an entry that is longer than readers accept was written")
	}
	if info, err := file.Stat(); err != nil || info.Size() != 0 || r.seq != 0 {
		t.Errorf("after a rejected entry: file size %d, number %d, %v, want 0", info.Size(), r.seq, err)
	}
}

func TestOpenRecordsRejectsInvalidFiles(t *testing.T) {
	for name, text := range map[string]string{
		"a line that is not JSON":   "hello\n",
		"an entry without a number": "{}\n",
		"a line without an end":     strings.Repeat("x", lastPart+1),
	} {
		file := recordFile(t, t.TempDir(), "box1")
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openRecords(file); err == nil {
			t.Errorf("openRecords accepted %s", name)
		}
		if data, err := os.ReadFile(file.Name()); err != nil || string(data) != text {
			t.Errorf("openRecords changed the file with %s: %v", name, err)
		}
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, _, err := openRecords(null); err == nil {
		t.Error("openRecords accepted a device")
	}
}

func TestFlowFileSizeIsLimited(t *testing.T) {
	file := recordFile(t, t.TempDir(), "box1")
	r := reopen(t, file)
	big := egress.Record{Path: strings.Repeat("x", 250<<10)}
	var err error
	n := 0
	for ; err == nil; n++ {
		if n > maxRecords/(250<<10) {
			t.Fatal("the flow file exceeds its limit")
		}
		err = r.Record(big)
	}
	if fault.CodeOf(err) != "records_full" || n < maxRecords/(251<<10) {
		t.Errorf("after %d entries: got %v, want records_full", n, err)
	}
	if info, err := file.Stat(); err != nil || info.Size() > maxRecords {
		t.Errorf("the flow file has %d bytes, more than its limit: %v", info.Size(), err)
	}
	r.close()
	// The limit applies to the size of the file, not to the bytes that one recorder wrote.
	if err := reopen(t, file).Record(big); fault.CodeOf(err) != "records_full" {
		t.Errorf("Record to a full file that was reopened: got %v, want records_full", err)
	}
}

// A line that was written in part is completed when the disk has space again.
func TestRecorderCompletesLineAfterFullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r := reopen(t, recordFile(t, dir, "box1"))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	rec := egress.Record{Path: strings.Repeat("x", 5000)}
	written := 0
	for ; written < 100; written++ {
		if err := r.Record(rec); err != nil {
			if fault.CodeOf(err) != "records_not_kept" || !errors.Is(err, unix.ENOSPC) {
				t.Errorf("Record on a full disk: got %v, want records_not_kept", err)
			}
			break
		}
	}
	if written == 100 || len(r.unwritten) == 0 {
		t.Fatalf("%d entries fit, %d bytes are unwritten: the disk was not filled in the middle of a line", written, len(r.unwritten))
	}
	if err := r.Record(rec); err == nil {
		t.Error("Record succeeded while the disk is full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := r.Record(rec); err != nil {
		t.Errorf("Record when the disk has space again: %v", err)
	}
	r.close()
	// The partial line is complete, and no entry is missing.
	if got := readRecords(t, dir, "box1"); len(got) != written+2 {
		t.Errorf("%d flow entries, want %d", len(got), written+2)
	}
}

func FuzzRepair(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"seq\":2}\n{\"se"))
	f.Add([]byte("\n\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		seq, err := repair(file)
		left, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if !bytes.HasPrefix(data, left) || bytes.Count(left, []byte("\n")) != bytes.Count(data, []byte("\n")) {
			t.Fatalf("repair changed %q to %q", data, left)
		}
		if err != nil {
			return
		}
		if len(left) > 0 && left[len(left)-1] != '\n' {
			t.Fatalf("after repair the file %q ends within a line", left)
		}
		if again, err := repair(file); err != nil || again != seq {
			t.Fatalf("a second repair returned %d, %v, want %d", again, err, seq)
		}
	})
}

// The entry of a use of a secret, an approved action or a publication is on the disk before the
// action happens. Other entries do not wait.
func TestImportantEntriesAreSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := newRecorder("box1", file, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		record egress.Record
		synced bool
	}{
		{egress.Record{Kind: egress.KindHTTP}, false},
		{egress.Record{Kind: egress.KindTunnel, Begins: true}, false},
		{egress.Record{Kind: egress.KindHTTP, Begins: true, Secrets: []string{"KEY"}}, true},
		{egress.Record{Kind: egress.KindHTTP, Secrets: []string{"KEY"}}, false},
		{egress.Record{Kind: egress.KindHTTP, Begins: true, Approval: "a1"}, true},
		{egress.Record{Kind: egress.KindPublish, Begins: true}, true},
		{egress.Record{Kind: egress.KindGit, Begins: true}, true},
	} {
		if err := r.Record(c.record); err != nil {
			t.Fatal(err)
		}
		if got := r.synced == r.seq; got != c.synced {
			t.Errorf("entry %d: synced is %v, want %v", i, got, c.synced)
		}
	}
	// If an entry cannot be synced, its action does not happen.
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.waitSynced(r.seq + 1); fault.CodeOf(err) != "records_not_kept" {
		t.Errorf("waitSynced on a failing disk: got %v, want records_not_kept", err)
	}
}

// A pipe accepts bytes but cannot be synced. So Record fails for an entry that must be synced,
// which shows that Record waits for the sync.
func TestImportantEntriesWaitForSync(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	r := &recorder{sandbox: "box1", file: to, uses: map[string]int64{}}
	defer r.close()
	if err := r.Record(egress.Record{Kind: egress.KindTunnel, Begins: true}); err != nil {
		t.Fatalf("control: an entry that needs no sync: %v", err)
	}
	for name, rec := range map[string]egress.Record{
		"a use of a secret": {Kind: egress.KindHTTP, Begins: true, Secrets: []string{"KEY"}},
		"an approval":       {Kind: egress.KindHTTP, Begins: true, Approval: "a1"},
		"a publication":     {Kind: egress.KindPublish, Begins: true},
		"a push":            {Kind: egress.KindGit, Begins: true},
	} {
		if err := r.Record(rec); fault.CodeOf(err) != "records_not_kept" {
			t.Errorf("Record of %s: got %v, want records_not_kept", name, err)
		}
	}
}
