package audit

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// flakySink is a sink whose first deliveries fail.
type flakySink struct {
	mu    sync.Mutex
	fails int
	got   []Checkpoint
}

func (m *flakySink) Put(_ context.Context, c Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails > 0 {
		m.fails--
		return errors.New("connection reset")
	}
	m.got = append(m.got, c)
	return nil
}

func (m *flakySink) sizes() (out []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.got {
		out = append(out, c.Size)
	}
	return out
}

// A tree head is signed within a minute after new entries, for each thousand entries, and at the
// end. Without new entries none is signed.
func TestTreeHeadsAreSignedPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &flakySink{}
		l := openLog(t, Options{Sinks: []Sink{sink}})
		expect := func(when string, want ...int64) {
			t.Helper()
			synctest.Wait()
			got := sink.sizes()
			if len(got) != len(want) || len(got) > 0 && got[len(got)-1] != want[len(want)-1] {
				t.Fatalf("signed sizes %s: got %v, want %v", when, got, want)
			}
		}
		if err := l.Note(draft(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		expect("before a minute")
		time.Sleep(11 * time.Second)
		expect("after a minute", 1)
		time.Sleep(time.Hour)
		expect("nothing new", 1)
		fill(t, l, 0, 1000)
		expect("a thousand", 1, 1001)
		fill(t, l, 0, 1)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		expect("at the end", 1, 1001, 1002)
	})
}

// A failed delivery is repeated, and Status shows the failure.
func TestFailingSinkIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &flakySink{fails: 3}
		l := openLog(t, Options{Sinks: []Sink{sink}, Log: quiet()})
		fill(t, l, 0, 2)
		if _, err := l.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := l.Status(); st.SinksBehind != 1 || st.SinkFailures != 1 {
			t.Errorf("status after the first failure: %+v", st)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := l.Status(); st.SinksBehind != 0 || st.SinkFailures != 3 || len(sink.sizes()) != 1 {
			t.Errorf("status after a minute: %+v, delivered %v", st, sink.sizes())
		}
		fill(t, l, 0, 1)
		sink.fails = 100
		if err := l.Close(); err == nil {
			t.Error("Close returned no error, but the last tree head was not delivered")
		}
	})
}

func TestFileSink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree-heads")
	sink, err := ParseSink("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, Options{Sinks: []Sink{sink}})
	for i := range 3 {
		fill(t, l, i, i+1)
		if _, err := l.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, "the sink has the newest tree head", func() bool { return l.Status().SinksBehind == 0 })
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := Notes(data)
	if err != nil || len(notes) != 3 {
		t.Fatalf("notes of the sink: got %d, %v, want 3", len(notes), err)
	}
	if v, err := l.Verify(t.Context(), notes...); err != nil || !v.OK || v.Checkpoints < 6 {
		t.Errorf("Verify against the notes of the sink: got %+v, %v, want OK", v, err)
	}
}

func TestSyslogSink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	listener, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sink, err := ParseSink("syslog:unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, Options{Sinks: []Sink{sink}})
	fill(t, l, 0, 1)
	c, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, _, err := listener.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	_, message, ok := strings.Cut(strings.TrimSpace(string(buf[:n])), "{")
	var k storedTreeHead
	if !ok || json.Unmarshal([]byte("{"+message), &k) != nil || k.Note != c.Note {
		t.Errorf("syslog message: got %q, want JSON with the note of the tree head", buf[:n])
	}
}

func TestParseSink(t *testing.T) {
	for _, good := range []string{"file:/x/y", "syslog:", "syslog:udp://log.example:514", "syslog:tcp://[::1]:601", "syslog:unix:///dev/log"} {
		if _, err := ParseSink(good); err != nil {
			t.Errorf("ParseSink of %s: got %v, want success", good, err)
		}
	}
	for _, bad := range []string{"", "file:", "file:x", "syslog:http://x:1", "syslog:udp://x", "syslog:unix:log", "https://x"} {
		if _, err := ParseSink(bad); fault.CodeOf(err) != "sink_invalid" {
			t.Errorf("ParseSink of %s: got %v, want sink_invalid", bad, err)
		}
	}
}

// The key is created once, also by concurrent callers, and only its user can read it.
func TestKeyIsPrivateAndCreatedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	keys := make(chan string, 16)
	var opened sync.WaitGroup
	for range cap(keys) {
		opened.Go(func() {
			l, err := Open(Options{Dir: dir, Log: quiet()})
			if err != nil {
				t.Error(err)
				keys <- ""
				return
			}
			keys <- l.Key()
			l.Close()
		})
	}
	opened.Wait()
	first := <-keys
	for range cap(keys) - 1 {
		if k := <-keys; k != first {
			t.Fatalf("two opened logs have the keys %s and %s", k, first)
		}
	}
	path := filepath.Join(dir, keyName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: got %v, %v, want 0600", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir, Log: quiet()}); err == nil {
		t.Error("Open accepted a key that other users can read")
	}
	os.Chmod(path, 0o600)
	l := openLog(t, Options{Dir: dir})
	fill(t, l, 0, 1)
	l.Close()
	os.Remove(path)
	if _, err := Open(Options{Dir: dir, Log: quiet()}); err == nil {
		t.Error("Open created a new key for a log with entries")
	}
}

func TestOpenRejectsSharedDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir, Log: quiet()}); fault.CodeOf(err) != "record_not_private" {
		t.Errorf("Open of a shared directory: got %v, want record_not_private", err)
	}
}
