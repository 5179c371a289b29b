package observe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

func newTap(t testing.TB, survey func(context.Context, string) error) (*Tap, *audittest.Log) {
	t.Helper()
	r := &audittest.Log{}
	recordings := recording.New(recording.Options{Dir: filepath.Join(t.TempDir(), "recordings")})
	tp, err := New(Deps{Audit: r, Recordings: recordings, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Survey: survey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tp.Close()
		if err := recordings.Close(); err != nil {
			t.Error(err)
		}
	})
	return tp, r
}

func lastEnd(t testing.TB, r *audittest.Log) (e Ended) {
	t.Helper()
	all := r.Entries(audit.CommandEnded)
	if len(all) == 0 {
		t.Fatal("the audit log has no ended command")
	}
	if err := json.Unmarshal(all[len(all)-1].Data, &e); err != nil {
		t.Fatal(err)
	}
	e.N, e.DurationMS = 0, 0
	return e
}

func framed(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

func event(t testing.TB, e *pb.ProcessEvent) []byte {
	t.Helper()
	data, err := proto.Marshal(&pb.StartResponse{Event: e})
	if err != nil {
		t.Fatal(err)
	}
	return framed(0, data)
}

// FuzzEvents passes arbitrary responses of a sandbox. However a response is cut into pieces, the
// audit entries are the same, and no more output is recorded than was received.
func FuzzEvents(f *testing.F) {
	start := event(f, &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 7}}})
	out := event(f, &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: []byte("text")}}}})
	end := event(f, &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}}})
	f.Add(append(append(append([]byte{}, start...), out...), end...), false)
	f.Add(append(append([]byte{}, out...), framed(flagEnd, []byte(`{"error":{"code":"deadline_exceeded"}}`))...), false)
	f.Add(append(start, framed(flagTrailers, []byte("grpc-status: 5\r\n"))...), false)
	f.Add(framed(0, []byte(`{"event":{"data":{"pty":"aGVsbG8="}}}`)), true)
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, true)
	tp, _ := newTap(f, nil)
	f.Fuzz(func(t *testing.T, wire []byte, asJSON bool) {
		r := &audittest.Log{}
		tp.Audit = r
		var want Ended
		for i, step := range []int{len(wire) + 1, 1, 3} {
			cmd, err := tp.begin(Call{Sandbox: "box1", Actor: "a"}, Started{How: HowStart})
			if err != nil {
				t.Fatal(err)
			}
			e := &events{cmd: cmd, decoder: redaction.Decoder{JSON: asJSON}}
			for rest := wire; len(rest) > 0; {
				n := min(step, len(rest))
				e.parse(rest[:n])
				rest = rest[n:]
			}
			cmd.finish()
			got := lastEnd(t, r)
			var printed int64
			for _, s := range []*Sum{got.Stdout, got.Stderr, got.PTY} {
				if s != nil {
					printed += s.Bytes
				}
			}
			if printed > int64(len(wire)) || got.Exit == nil && !got.Lost && got.Error == "" {
				t.Fatalf("end of the command: got %+v", got)
			}
			if i == 0 {
				want = got
			} else if got.Lost != want.Lost || !got.Lost && text(t, got) != text(t, want) {
				t.Fatalf("in pieces of %d: %s, want %s", step, text(t, got), text(t, want))
			}
		}
	})
}

func text(t testing.TB, e Ended) string {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestLargeOutputIsIndependentOfPieces checks that the recorded output is the same, however it is
// cut into pieces.
func TestLargeOutputIsIndependentOfPieces(t *testing.T) {
	tp, r := newTap(t, nil)
	large := strings.Repeat("0123456789abcdef", 5000)
	var wire []byte
	for range 5 {
		wire = append(wire, event(t, &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(large)}}}})...)
		wire = append(wire, event(t, &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}})...)
		wire = append(wire, event(t, &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: []byte("p")}}}})...)
	}
	wire = append(wire, event(t, &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{Exited: true}}})...)
	sum := sha256.Sum256([]byte(strings.Repeat(large, 5)))
	for _, step := range []int{1, 2, 3, 7, 19, 100, 4096, 32 << 10, len(wire)} {
		cmd, err := tp.begin(Call{Sandbox: "box1", Actor: "a"}, Started{How: HowStart})
		if err != nil {
			t.Fatal(err)
		}
		e := &events{cmd: cmd}
		for rest := wire; len(rest) > 0; {
			n := min(step, len(rest))
			e.parse(rest[:n])
			rest = rest[n:]
		}
		got := lastEnd(t, r)
		if got.Exit == nil || got.Stdout.Sum != hex.EncodeToString(sum[:]) || got.Stdout.Bytes != int64(5*len(large)) || got.PTY.Bytes != 5 {
			t.Errorf("in pieces of %d: %s", step, text(t, got))
		}
	}
}

// FuzzLines is like FuzzEvents, for responses of the interpreter.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"type":"stdout","text":"a"}` + "\n" + `{"type":"error","name":"E","value":"v"}` + "\n" + `{"type":"end_of_execution"}` + "\n"))
	f.Add([]byte(`{"type":"result","text":"\ud800","png":"x"}` + "\n\n[\n" + `{"type":"stdout","text":["no"]}`))
	tp, _ := newTap(f, nil)
	f.Fuzz(func(t *testing.T, answer []byte) {
		r := &audittest.Log{}
		tp.Audit = r
		var want string
		for i, step := range []int{len(answer) + 1, 1, 5} {
			cmd, err := tp.begin(Call{Sandbox: "box1", Actor: "a"}, Started{How: HowCell})
			if err != nil {
				t.Fatal(err)
			}
			l := &lines{cmd: cmd}
			for rest := answer; len(rest) > 0; {
				n := min(step, len(rest))
				l.parse(rest[:n])
				rest = rest[n:]
			}
			cmd.finish()
			if got := text(t, lastEnd(t, r)); i == 0 {
				want = got
			} else if got != want {
				t.Fatalf("in pieces of %d: %s, want %s", step, got, want)
			}
		}
	})
}

// TestSurveysAreShared checks that cells that end soon after each other share a survey of the
// sandbox's files, and that cells that end during a survey share the next one. Surveys of other
// sandboxes do not wait.
func TestSurveysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var surveysRun atomic.Int64
		finish := make(chan struct{})
		tp, _ := newTap(t, func(_ context.Context, id string) error {
			if id == "box1" {
				surveysRun.Add(1)
				<-finish
			}
			return errors.New("no engine")
		})
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		requestTen := func() {
			for range 10 {
				tp.surveys.request("box1")
				pass(surveyDelay / 20)
			}
		}
		requestTen()
		if n := surveysRun.Load(); n != 0 {
			t.Errorf("got %d surveys while cells follow each other, want 0", n)
		}
		pass(surveyDelay)
		tp.surveys.request("box2")
		pass(2 * surveyDelay)
		if n := surveysRun.Load(); n != 1 || len(tp.surveys.again) != 1 {
			t.Errorf("got %d surveys and running ones %v, want 1 of each", n, tp.surveys.again)
		}
		requestTen() // during the first survey
		finish <- struct{}{}
		pass(2 * surveyDelay)
		if n := surveysRun.Load(); n != 2 {
			t.Errorf("got %d surveys, want 2", n)
		}
		finish <- struct{}{}
		pass(2 * surveyDelay)
		if n := surveysRun.Load(); n != 2 {
			t.Errorf("got %d surveys, want 2, because no other was requested", n)
		}
		if len(tp.surveys.again) > 0 {
			t.Errorf("surveys to repeat: got %v", tp.surveys.again)
		}
		tp.Close()
		tp.surveys.request("box1")
		if n := surveysRun.Load(); n != 2 {
			t.Errorf("got %d surveys after Close, want 2", n)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransport checks the transport for callers in this process. If a command is not run, the
// error says why.
func TestTransport(t *testing.T) {
	tp, r := newTap(t, nil)
	reached := 0
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		reached++
		body := string(event(t, &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: 4, Exited: true, Status: "exit status 4"}}}))
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/connect+proto"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
	call := func(next http.RoundTripper) error {
		data, err := proto.Marshal(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest/process.Process/Start", strings.NewReader(string(framed(0, data))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+proto")
		req.Header.Set(tokenHeader, "t")
		res, err := tp.Transport(next, Call{Sandbox: "box1", Port: guestboot.Port, Actor: "key:1", How: HowExec, Token: "t"}).RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return errors.Join(err, res.Body.Close())
	}
	if err := call(base); err != nil || reached != 1 {
		t.Fatal(err)
	}
	if e := lastEnd(t, r); e.Exit == nil || *e.Exit != 4 || r.Entries(audit.CommandStarted)[0].Actor != "key:1" {
		t.Errorf("end of the command: got %+v", e)
	}
	if err := call(roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })); err == nil || !lastEnd(t, r).Lost {
		t.Errorf("failed round trip: got error %v", err)
	}
	r.Fail(func(audit.Draft) bool { return true })
	if err := call(base); err == nil || !strings.Contains(err.Error(), "audit log") || reached != 1 {
		t.Errorf("%v, %d calls", err, reached)
	}
	var none *Tap
	if _, same := none.Transport(base, Call{}).(roundTrip); !same {
		t.Error("the transport of a nil tap is not the base transport")
	}
	if _, err := New(Deps{}); err == nil {
		t.Error("New succeeded without dependencies")
	}
}

// TestStoredArgumentsAreBounded checks that the stored part of a command is bounded, and cut
// between characters.
func TestStoredArgumentsAreBounded(t *testing.T) {
	long := strings.Repeat("é", limit)
	for _, c := range []struct {
		argv []string
		cut  bool
	}{{nil, false}, {[]string{"a", "b"}, false}, {[]string{long}, true}, {[]string{strings.Repeat("x", limit), "y"}, true}, {make([]string, 100_000), true}, {[]string{"\xff"}, false}} {
		out, cut := boundedAll(c.argv, nil)
		if cut != c.cut || len(strings.Join(out, "")) > limit+4 || len(out) > limit+1 || !strings.HasPrefix(long, strings.TrimSuffix(strings.Join(out, ""), "…")) && len(c.argv) > 0 && c.argv[0] == long {
			t.Errorf("%d arguments: %d bytes, %v", len(c.argv), len(strings.Join(out, "")), cut)
		}
	}
}

// BenchmarkCommand measures one command that prints a line, from its request to its response, with
// an audit log and recordings on the disk.
func BenchmarkCommand(b *testing.B) {
	dir := b.TempDir()
	log := slog.New(slog.DiscardHandler)
	r, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "record"), Log: log})
	if err != nil {
		b.Fatal(err)
	}
	recordings := recording.New(recording.Options{Dir: filepath.Join(dir, "recordings")})
	tp, err := New(Deps{Audit: r, Recordings: recordings, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		tp.Close()
		if err := errors.Join(recordings.Close(), r.Close()); err != nil {
			b.Error(err)
		}
	})
	data, err := proto.Marshal(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "echo", Args: []string{"hello"}}})
	if err != nil {
		b.Fatal(err)
	}
	request := string(framed(0, data))
	answer := append(event(b, &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 7}}}),
		event(b, &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte("hello\n")}}}})...)
	answer = append(answer, event(b, &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{Exited: true}}})...)
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/connect+proto"}}, Body: io.NopCloser(strings.NewReader(string(answer)))}, nil
	})
	tr := tp.Transport(base, Call{Sandbox: "box1", Port: guestboot.Port, Actor: "a", Token: "t"})
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://guest/process.Process/Start", strings.NewReader(request))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+proto")
		req.Header.Set(tokenHeader, "t")
		res, err := tr.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDeniedRequestsAreCounted checks that many requests without a token get few audit entries and
// one with their count, per minute and sandbox.
func TestDeniedRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp, r := newTap(t, nil)
		for range 100 {
			tp.TurnedAway("box1", "GET", 8000)
		}
		tp.TurnedAway("box2", "GET", 8000)
		if n := len(r.Entries()); n != maxRefused+1 {
			t.Errorf("%d entries", n)
		}
		time.Sleep(refusedInterval + time.Second)
		synctest.Wait()
		all := r.Entries()
		last := all[len(all)-1]
		if len(all) != maxRefused+2 || last.Sandbox != "box1" || !strings.Contains(string(last.Data), `"count":90`) {
			t.Errorf("%d entries, the last %s %s", len(all), last.Sandbox, last.Data)
		}
		// After the minute, the count is forgotten.
		tp.mu.Lock()
		held := len(tp.denied)
		tp.mu.Unlock()
		if tp.TurnedAway("box1", "GET", 8000); held != 0 || len(r.Entries()) != maxRefused+3 {
			t.Errorf("got %d counts after a minute and %d entries", held, len(r.Entries()))
		}
	})
}

// FuzzChangeOutcome passes arbitrary responses to a change. The outcome in the audit log is always
// one of the known values.
func FuzzChangeOutcome(f *testing.F) {
	f.Add(200, "application/proto", []byte{})
	f.Add(404, "application/json", []byte(`{"code":"not_found","message":"m"}`))
	f.Add(500, "text/plain", []byte(`{"code":7}`))
	f.Add(200, "application/grpc-web+proto", append(framed(0, []byte{10, 0}), framed(flagTrailers, []byte("grpc-status: 5\r\n"))...))
	f.Add(200, "application/grpc", []byte{0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		got := changeOutcome(&http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}}, body)
		if got != "ok" && got != "unreadable" && got != fmt.Sprintf("http_%d", status) && knownCode(got) != got {
			t.Errorf("outcome: got %q", got)
		}
	})
}
