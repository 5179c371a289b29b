package clamd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// recorded returns a scanner whose daemon reads a whole request, and sends the answers of a real one
// that were recorded, in order. It closes the connection after each.
func recorded(t *testing.T, answers ...string) *Scanner {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for _, answer := range answers {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			readRequest(conn)
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	s, err := New("tcp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readRequest reads a command, and the content of a scan.
func readRequest(conn net.Conn) (content []byte) {
	var name []byte
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			return nil
		}
		if one[0] == 0 {
			break
		}
		name = append(name, one[0])
	}
	if string(name) != "zINSTREAM" {
		return nil
	}
	for size := make([]byte, 4); ; {
		if _, err := io.ReadFull(conn, size); err != nil || binary.BigEndian.Uint32(size) == 0 {
			return content
		}
		part := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(conn, part); err != nil {
			return content
		}
		content = append(content, part...)
	}
}

// Only the daemon's own words count as a result. Everything else fails, because a file that was not
// scanned must not pass as clean.
func TestOnlyCompleteAnswersCount(t *testing.T) {
	for answer, want := range map[string]string{
		"stream: OK\x00": "", "stream: Crannog.Test.UNOFFICIAL FOUND\x00": "Crannog.Test.UNOFFICIAL",
		"stream: a\x1b[31m b FOUND\x00": `a?[31m b`,
	} {
		found, err := recorded(t, answer).Scan(t.Context(), strings.NewReader("text"))
		if err != nil || strings.ContainsRune(found, '\x1b') || (found == "") != (want == "") || want != "" && found[0] != want[0] {
			t.Errorf("%q: got %q, %v, want %q", answer, found, err, want)
		}
	}
	for _, answer := range []string{
		"", "stream: OK", "stream: O", "stream: OK\n", "OK\x00", "stream:  FOUND\x00", "stream: FOUND\x00", "stream: OK\x00stream: OK\x00",
		"INSTREAM size limit exceeded. ERROR\x00", "INSTREAM: Can't write to temporary file. ERROR\x00", "UNKNOWN COMMAND\x00",
		"stream: " + strings.Repeat("a", 2*maxReply) + " FOUND\x00",
	} {
		found, err := recorded(t, answer).Scan(t.Context(), strings.NewReader("text"))
		if fault.CodeOf(err) != "package_scanner" || found != "" || fault.HintOf(err) == "" {
			t.Errorf("%.80q: got %q, %v, want an error", answer, found, err)
		}
	}
}

// A daemon that answers OK before it has the content has scanned nothing of it.
func TestAnswerBeforeTheContentDoesNotCount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "stream: OK\x00")
		conn.Close() // with unread data, so the writer gets an error
	}()
	s, err := New("tcp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Scan(t.Context(), io.LimitReader(zeros{}, 64<<20)); err == nil {
		t.Errorf("got %q, want an error", found)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A file that cannot be read is no clean file, and its error is not one of the daemon.
func TestContentThatCannotBeRead(t *testing.T) {
	broken := errors.New("broken")
	_, err := recorded(t, "stream: OK\x00").Scan(t.Context(), io.MultiReader(strings.NewReader("a"), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the file", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A daemon that never answers does not hold a request for ever.
func TestScanEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		readRequest(conn)
		cancel()
		_, _ = io.Copy(io.Discard, conn) // until the scanner closes
		conn.Close()
	}()
	s, err := New("tcp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Scan(ctx, strings.NewReader("text")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	<-gone
}

// Without AlertExceedsMax the daemon calls files clean that it has not read to their end.
func TestDaemonThatHidesItsLimitsIsNotReady(t *testing.T) {
	const version = "ClamAV 1.4.6/27000/Mon Nov 30 09:00:00 2026\x00"
	if _, err := recorded(t, version, "stream: OK\x00").Ready(t.Context()); fault.CodeOf(err) != "package_scanner" || !strings.Contains(fault.HintOf(err), "AlertExceedsMax") {
		t.Errorf("got %v, want an error with AlertExceedsMax in its fix", err)
	}
	s := recorded(t, version, "stream: Heuristics.Limits.Exceeded.MaxRecursion FOUND\x00")
	for range 2 { // the second time nothing is asked
		if got, err := s.Ready(t.Context()); err != nil || got+"\x00" != version {
			t.Errorf("control: got %q, %v", got, err)
		}
	}
	if _, err := recorded(t, "PONG\x00").Ready(t.Context()); err == nil {
		t.Error("something else than ClamAV is ready")
	}
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "unix:///run/clamav/clamd.ctl": true, "tcp://127.0.0.1:3310": true, "tcp://[::1]:3310": true,
		"/run/clamav/clamd.ctl": false, "unix://run/clamd.ctl": false, "tcp://127.0.0.1": false, "http://a:1": false, "tcp://a:1/b": false, "%": false,
	} {
		if _, err := New(address); (err == nil) != ok {
			t.Errorf("New(%q): got %v, want it accepted: %v", address, err, ok)
		}
	}
	s, err := New("unix:///nonexistent/clamd.ctl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ready(t.Context()); fault.KindOf(err) != fault.Unavailable || fault.HintOf(err) == "" {
		t.Errorf("no daemon: got %v, want Unavailable with a fix", err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add("stream: OK")
	f.Add("stream: Eicar-Signature FOUND")
	f.Add("INSTREAM size limit exceeded. ERROR")
	f.Fuzz(func(t *testing.T, reply string) {
		found, err := parseReply(reply)
		if err == nil && found == "" && reply != "stream: OK" {
			t.Errorf("%q counts as clean", reply)
		}
		if len(found) > 4*maxName || bytes.ContainsFunc([]byte(found), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: the name %q is not printable", reply, found)
		}
	})
}
