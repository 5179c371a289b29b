package ingress_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/guest/client"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// The entry names the limit that a command reached in every protocol, and it is the same limit as
// in the command's result.
func TestLimitHitIsRecorded(t *testing.T) {
	x := newObservedProxy(t)
	const full = "cp: error writing 'b': No space left on device\n"
	exit := func(code int32) *pb.ProcessEvent {
		return &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: code, Exited: true, Status: "exit status"}}}
	}
	cases := map[string]struct {
		source, output string
		code           int32
		want           string
	}{
		"disk":               {"stderr", full, 1, api.HitDiskFull},
		"disk, exit code 0":  {"stderr", full, 0, ""},
		"long output before": {"stderr", strings.Repeat("x", 1<<20) + full, 1, api.HitDiskFull},
		"on stdout":          {"stdout", full, 1, ""},
		"processes":          {"stderr", "sh: 0: Cannot fork\n", 2, api.HitPIDs},
		"memory":             {"stderr", "Traceback\nMemoryError\n", 1, api.HitOOM},
		"another failure":    {"stderr", "no such file\n", 1, ""},
		"processes, retried": {"stderr", "bash: fork: retry: Resource temporarily unavailable\n", 0, api.HitPIDs},
	}
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		c := cases[guest.runs[len(guest.runs)-1]]
		err := send(startEvent(7))
		for text := c.output; text != ""; {
			n := min(len(text), 30_000)
			err = errors.Join(err, send(printed(c.source, text[:n])))
			text = text[n:]
		}
		return errors.Join(err, send(exit(c.code)))
	}
	x.serves(guest)
	for dialect, options := range dialects {
		for name, c := range cases {
			s, err := x.client(options...).Start(t.Context(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: name}}))
			if err != nil {
				t.Fatal(err)
			}
			for s.Receive() {
			}
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
			all := x.ended(t)
			stderr := ""
			if c.source == "stderr" {
				stderr = c.output
			}
			if got := all[len(all)-1].Hit; got != c.want || got != client.LimitHit(client.Exit{Code: int(c.code)}, stderr, false) {
				t.Errorf("%s, %s: %q, want %q", dialect, name, got, c.want)
			}
		}
	}
}

// A time limit counts as a limit too, and so does the reason that a cell reports.
func TestLimitHitOfTimeoutsAndCells(t *testing.T) {
	x := newObservedProxy(t)
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		return errors.Join(send(startEvent(7)), connect.NewError(connect.CodeDeadlineExceeded, errors.New("too late")))
	}
	x.serves(guest)
	if err := x.once(); err == nil {
		t.Fatal("it succeeded")
	}
	if e := x.ended(t)[0]; !e.TimedOut || e.Hit != api.HitTimeout {
		t.Errorf("end of the command: got %+v", e)
	}
	failure := ""
	x.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		if _, err := w.Write([]byte(failure + `{"type":"end_of_execution"}` + "\n")); err != nil {
			t.Error(err)
		}
	}))
	for text, want := range map[string]string{
		`{"type":"error","name":"OSError","value":"[Errno 28] No space left on device","traceback":"T"}` + "\n": api.HitDiskFull,
		`{"type":"error","name":"MemoryError","value":"","traceback":"T"}` + "\n":                               api.HitOOM,
		`{"type":"error","name":"KeyError","value":"x","traceback":"T"}` + "\n":                                 "",
		`{"type":"stderr","text":"No space left on device\n"}` + "\n":                                           "",
	} {
		failure = text
		x.post(t, guestboot.InterpreterPort, "/execute", "application/json", `{"code":"x"}`, nil)
		all := x.ended(t)
		if got := all[len(all)-1].Hit; got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
