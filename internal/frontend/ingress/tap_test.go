package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// dialects are all encodings of Start that our clients or those of npm use.
var dialects = map[string][]connect.ClientOption{
	"binary":            {},
	"json":              {connect.WithProtoJSON()},
	"binary, gzip":      {connect.WithSendGzip()},
	"json, gzip":        {connect.WithProtoJSON(), connect.WithSendGzip()},
	"grpc-web":          {connect.WithGRPCWeb()},
	"grpc-web, json":    {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	"grpc-web, gzip":    {connect.WithGRPCWeb(), connect.WithSendGzip()},
	"accepts only gzip": {connect.WithAcceptCompression("gzip", nil, nil), connect.WithCompressMinBytes(1 << 20)},
}

// P35: the output of a command is recorded as its caller saw it, in every encoding, with its
// secrets redacted. Without a redactor the recording contains them. The audit log has the command
// and its result.
func TestCommandsAreRecorded(t *testing.T) {
	x := newObservedProxy(t)
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		return errors.Join(send(startEvent(7)), send(printed("stdout", "a "+sealedValue[:9])), send(keepalive()),
			send(printed("stdout", sealedValue[9:]+" é\xe2\x82")), send(printed("stderr", "err\n")), send(printed("stdout", "\xac\n")), send(ended()))
	}
	x.serves(guest)
	n := 0
	for name, options := range dialects {
		x.withAndWithoutRedactor(t, func(t *testing.T, _ string) {
			n++
			x.mu.Lock()
			unredacted := x.sandboxes[boxID].redactor == nil
			x.mu.Unlock()
			shown := map[bool]string{true: sealedValue, false: "[redacted:KEY]"}[unredacted]
			dir, tag := "/tmp", "t"
			req := connect.NewRequest(&pb.StartRequest{
				Process: &pb.ProcessConfig{Cmd: "curl", Args: []string{"-H", "X-Key: " + sealedValue}, Envs: map[string]string{"B": sealedValue, "A": "1"}, Cwd: &dir}, Tag: &tag,
			})
			req.Header().Set("Authorization", "Basic cm9vdDo=")
			s, err := x.client(options...).Start(t.Context(), req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var h processOutput
			for s.Receive() {
				h.add(s.Msg().GetEvent())
			}
			if err := s.Err(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if h.text["stdout"] != "a "+shown+" é€\n" {
				t.Errorf("%s: the caller got %q", name, h.text)
			}
			if len(x.started(t)) != n || len(x.ended(t)) != n {
				t.Fatalf("%s: %d started, %d ended, want %d", name, len(x.started(t)), len(x.ended(t)), n)
			}
			b, e := x.started(t)[n-1], x.ended(t)[n-1]
			if b.N != n || b.How != observe.HowStart || fmt.Sprint(b.Argv) != "[curl -H X-Key: "+shown+"]" || b.Cwd != "/tmp" || fmt.Sprint(b.Env) != "[A B]" || b.User != "root" || b.Tag != "t" || b.TTY || b.Cut {
				t.Errorf("%s: %+v", name, b)
			}
			if e.N != n || e.PID != 7 || e.Exit == nil || *e.Exit != 3 || e.Lost || e.Error != "" || e.PTY != nil ||
				*e.Stdout != (observe.Sum{Bytes: int64(len(h.text["stdout"])), Sum: sum(h.text["stdout"])}) || *e.Stderr != (observe.Sum{Bytes: 4, Sum: sum("err\n")}) {
				t.Errorf("%s: %+v", name, e)
			}
			text, events := x.replay(t, n)
			if text != "a "+shown+" éerr\n€\n" {
				t.Errorf("%s: replay %q", name, text)
			}
			if last := events[len(events)-1]; last.Code != asciicast.Exit || last.Data != "3" {
				t.Errorf("%s: %v", name, last)
			}
			for _, entry := range x.record.Entries() {
				if !unredacted && strings.Contains(string(entry.Data), sealedValue) && entry.Seq >= int64(2*n-2) {
					t.Errorf("%s: the value is in %s", name, entry.Data)
				}
			}
		})
	}
	if len(guest.runs) != n {
		t.Errorf("%d of %d commands ran", len(guest.runs), n)
	}
}

// Terminals: their size, its changes, and a second viewer.
func TestTerminalsAreRecorded(t *testing.T) {
	x := newObservedProxy(t)
	next := make(chan struct{})
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		err := errors.Join(send(startEvent(9)), send(printed("pty", "$ ")))
		<-next
		return errors.Join(err, send(printed("pty", "bye\r\n")), send(ended()))
	}
	x.serves(guest)
	client := x.client()
	run := func() *connect.ServerStreamForClient[pb.StartResponse] {
		s, err := client.Start(t.Context(), connect.NewRequest(&pb.StartRequest{
			Process: &pb.ProcessConfig{Cmd: "bash", Envs: map[string]string{"TERM": "xterm"}}, Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: 100, Rows: 40}},
		}))
		if err != nil || !s.Receive() || !s.Receive() {
			t.Fatal(err)
		}
		return s
	}
	s := run()
	pid := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 9}}
	// The guest of this test implements neither call; only the requests count.
	for _, options := range dialects {
		_, _ = x.client(options...).Update(t.Context(), connect.NewRequest(&pb.UpdateRequest{Process: pid, Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: 90, Rows: 20}}}))
	}
	_, _ = client.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: pid, Signal: pb.Signal_SIGNAL_SIGTERM}))
	other := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 10}}
	_, _ = client.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: other, Signal: pb.Signal_SIGNAL_SIGKILL}))
	close(next)
	for s.Receive() {
	}
	b, e := x.started(t)[0], x.ended(t)[0]
	if b.How != observe.HowTerminal || !b.TTY || e.PTY == nil || e.PTY.Bytes != 7 || e.Stdout != nil {
		t.Errorf("start and end of the terminal: got %+v, %+v", b, e)
	}
	text, events := x.replay(t, 1)
	resizes, marks := 0, ""
	for _, ev := range events {
		switch ev.Code {
		case asciicast.Resize:
			if cols, rows, ok := ev.Size(); ok && cols == 90 && rows == 20 {
				resizes++
			}
		case asciicast.Marker:
			marks += ev.Data + ";"
		}
	}
	if text != "$ bye\r\n" || resizes != len(dialects) || marks != "signal terminated;" {
		t.Errorf("%q, %d resizes, %q", text, resizes, marks)
	}
	c, err := client.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: pid}))
	if err != nil {
		t.Fatal(err)
	}
	for c.Receive() {
	}
	if b, e := x.started(t)[1], x.ended(t)[1]; b.How != observe.HowConnect || b.PID != 9 || b.N != 2 || e.Exit == nil || e.PTY.Bytes != 7 {
		t.Errorf("start and end of the later viewer: got %+v, %+v", b, e)
	}
}

// A command that does not run, one whose caller leaves and one whose sandbox ends each have a
// different end in the audit log.
func TestCommandsThatDoNotExit(t *testing.T) {
	x := newObservedProxy(t)
	seen := make(chan struct{}, 10)
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		err := errors.Join(send(startEvent(7)), send(printed("stdout", "x")))
		for i := 0; err == nil; i++ {
			err = send(keepalive())
		}
		return err
	}
	x.serves(guest)
	for name, options := range dialects {
		before := len(x.ended(t))
		s, err := x.client(options...).Start(t.Context(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "absent"}}))
		if err == nil {
			for s.Receive() {
			}
			err = s.Err()
		}
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
		e := x.ended(t)
		if len(e) != before+1 || e[before].Error != "not_found" || e[before].Lost || e[before].Exit != nil {
			t.Errorf("%s: %+v", name, e[before:])
		}
	}
	start := func(ctx context.Context) {
		s, err := x.client().Start(ctx, connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "yes"}}))
		if err != nil || !s.Receive() || !s.Receive() {
			t.Error(err)
			return
		}
		go func() {
			for s.Receive() {
			}
			seen <- struct{}{}
		}()
	}
	before := len(x.ended(t))
	ctx, leave := context.WithCancel(t.Context())
	start(ctx)
	leave()
	<-seen
	start(t.Context())
	x.kill(boxID)
	<-seen
	hosttest.Eventually(t, "the ends of commands whose caller left or whose sandbox ended", func() bool { return len(x.ended(t)) == before+2 })
	for _, e := range x.ended(t)[before:] {
		if !e.Lost || e.Exit != nil || e.Stdout == nil || e.Stdout.Bytes != 1 || e.PID != 7 {
			t.Errorf("end of a lost command: got %+v", e)
		}
	}
	if list, err := x.recordings.Newest(boxID, 100); err != nil || !list[len(list)-1].Lost || list[len(list)-1].Ended.IsZero() {
		t.Errorf("newest recordings: got %+v, %v", list, err)
	}
}

// F27: a command whose caller has left continues, and is still observed: its later output is
// recorded, and its end has an entry.
func TestF27OutputWithoutCaller(t *testing.T) {
	x := newObservedProxy(t)
	left := make(chan struct{})
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		err := errors.Join(send(startEvent(7)), send(printed("stdout", "early")))
		<-left
		// The first write to a caller that has gone may still succeed.
		for range 100 {
			err = errors.Join(err, send(printed("stdout", "+")))
		}
		return errors.Join(err, send(ended()))
	}
	x.serves(guest)
	for name, options := range dialects {
		before := len(x.ended(t))
		ctx, leave := context.WithCancel(t.Context())
		s, err := x.client(options...).Start(ctx, connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "server"}}))
		if err != nil || !s.Receive() || !s.Receive() {
			t.Fatalf("%s: %v", name, err)
		}
		leave()
		for s.Receive() {
		}
		left <- struct{}{}
		hosttest.Eventually(t, name+": the end of a command whose caller left", func() bool { return len(x.ended(t)) == before+1 })
		if e := x.ended(t)[before]; e.Lost || e.Exit == nil || *e.Exit != 3 || e.Stdout == nil || e.Stdout.Bytes != 105 {
			t.Errorf("%s: %+v, %+v", name, e, e.Stdout)
		}
	}
}

// If the audit log refuses an entry, nothing runs, in any encoding. A request that the guest would
// run is never forwarded unparsed.
func TestUnrecordedRequestsDoNotRun(t *testing.T) {
	x := newObservedProxy(t)
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error { return errors.Join(send(startEvent(7)), send(ended())) }
	x.serves(guest)
	cells := 0
	x.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cells++ }))
	x.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.CommandStarted })
	for name, options := range dialects {
		s, err := x.client(options...).Start(t.Context(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "x"}}))
		if err == nil {
			for s.Receive() {
			}
			err = s.Err()
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "audit log cannot be written") {
			t.Errorf("%s: %v", name, err)
		}
	}
	res, _ := x.post(t, guestboot.InterpreterPort, "/execute", "application/json", `{"code":"1"}`, nil)
	if res.StatusCode != http.StatusServiceUnavailable || cells > 0 {
		t.Errorf("%d, %d cells ran", res.StatusCode, cells)
	}
	if len(guest.runs) > 0 {
		t.Fatalf("%d ran", len(guest.runs))
	}
	x.record.Fail(nil)
	binaryStart := enveloped(0, mustProto(t, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "unrecorded"}}))
	for _, c := range []struct {
		name, path, kind, body string
		header                 map[string]string
	}{
		{"escaped path", "/process.Process/St%61rt", "application/connect+proto", binaryStart, nil},
		{"charset", "/process.Process/Start", "application/connect+json; charset=utf-8", enveloped(0, `{"process":{"cmd":"unrecorded"}}`), nil},
		{"charset in capitals", "/process.Process/Start", "Application/Connect+JSON;Charset=UTF-8", enveloped(0, `{"process":{"cmd":"unrecorded"}}`), nil},
		{"unknown fields", "/process.Process/Start", "application/connect+json", enveloped(0, `{"later":[1],"process":{"cmd":"unrecorded","x":{}}}`), nil},
		{"escaped names", "/process.Process/Start", "application/connect+json", enveloped(0, `{"pr\u006fcess":{"cmd":"unrecorded"}}`), nil},
		{"message in gzip", "/process.Process/Start", "application/connect+proto", enveloped(1, gzipped(t, binaryStart[5:])), map[string]string{"Connect-Content-Encoding": "gzip"}},
		{"short timeout", "/process.Process/Start", "application/connect+proto", binaryStart, map[string]string{"Connect-Timeout-Ms": "1"}},
	} {
		before := len(guest.runs)
		res, body := x.post(t, guestboot.Port, c.path, c.kind, c.body, c.header)
		ran, on := len(guest.runs)-before, len(x.started(t))
		if ran > 0 && (on == 0 || x.started(t)[on-1].Argv[0] != "unrecorded" || len(x.record.Entries(audit.CommandStarted)) != len(x.record.Entries(audit.CommandEnded))) {
			t.Errorf("%s: it ran without an entry: %d %q", c.name, res.StatusCode, body)
		}
		if ran == 0 && c.name != "short timeout" {
			t.Errorf("%s: it did not run, so that nothing is tested: %d %q", c.name, res.StatusCode, body)
		}
	}
	// A request that cannot be decoded does not reach the sandbox.
	before, on := len(guest.runs), len(x.started(t))
	for name, body := range map[string]string{
		"two messages": binaryStart + binaryStart, "garbage": enveloped(0, "\xff\xff"), "nothing": "", "cut short": binaryStart[:7],
		"unknown flag": enveloped(1, binaryStart[5:]), "too long": "\x00\x7f\xff\xff\xff",
	} {
		x.post(t, guestboot.Port, "/process.Process/Start", "application/connect+proto", body, nil)
		if len(guest.runs) != before || len(x.started(t)) != on {
			t.Errorf("%s ran", name)
		}
	}
}

// A caller without the token can neither run commands nor fill the audit log.
func TestCallersWithoutTokenRunNothing(t *testing.T) {
	x := newObservedProxy(t)
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error { return errors.Join(send(startEvent(7)), send(ended())) }
	x.serves(guest)
	for _, token := range []string{"", "token-", "token-" + boxID + "x"} {
		req := connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "x"}})
		req.Header().Set("X-Access-Token", token)
		s, err := x.processes(t).Start(t.Context(), req)
		if err == nil {
			for s.Receive() {
			}
			err = s.Err()
		}
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%q: %v", token, err)
		}
	}
	if n := len(x.record.Entries()); n > 0 {
		t.Errorf("%d entries", n)
	}
	if ids, err := x.recordings.List(); err != nil || len(ids) > 0 {
		t.Errorf("list of recordings: got %v, %v", ids, err)
	}
}
