package ingress_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

func mustProto(t testing.TB, m proto.Message) string {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// files is a guest that stores nothing: it reads uploads and answers downloads.
func (x *observedProxy) files(t testing.TB) {
	x.serve(boxID, guestboot.Port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Query().Get("path")
		switch {
		case r.Header.Get("X-Access-Token") != "token-"+boxID && r.URL.Query().Get("signature") == "":
			w.WriteHeader(http.StatusUnauthorized)
		case path == "/absent":
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			if path == "/full" {
				w.WriteHeader(http.StatusInsufficientStorage)
			}
		case path == "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, strings.Repeat("content\n", 10_000))
		}
	}))
}

// Each uploaded or downloaded file has one entry, with the transferred bytes.
func TestTransfersAreRecorded(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		x := newObservedProxy(t)
		x.files(t)
		content := strings.Repeat("content\n", 10_000)
		last := func() observe.Moved {
			all := dataOf[observe.Moved](t, x.record, audit.Action)
			if len(all) == 0 {
				return observe.Moved{}
			}
			return all[len(all)-1]
		}
		count := func() int { return len(x.record.Entries(audit.Action)) }
		get := func(query string, header ...string) (string, error) {
			r := x.request(t, guestboot.Port, "GET", "/files?"+query)
			r.Header.Set("X-Access-Token", "token-"+boxID)
			for i := 0; i+1 < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			res, err := x.front.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			data, err := io.ReadAll(res.Body)
			return string(data), err
		}
		whole := observe.Moved{Do: "file.download", Outcome: "ok", Path: "/a b", User: "u", Bytes: int64(len(content)), Sum: sum(content)}
		if got, err := get("path=/a%20b&username=u"); err != nil || got != content || last() != whole {
			t.Errorf("%v, %d bytes of %s, %+v", err, len(got), sum(got), last())
		}
		if _, err := get("path=/cut"); err == nil || !last().Lost || last().Sum != sum("short") {
			t.Errorf("download that was cut off: got %v, %+v", err, last())
		}
		n := count()
		if _, err := get("path=/absent"); err != nil || count() != n {
			t.Errorf("%v: an entry about an absent file: %+v", err, last())
		}
		if _, err := get("path=/x", "X-Access-Token", ""); err != nil || count() != n+1 || last() != (observe.Moved{Do: "GET /files", Outcome: "unauthenticated"}) {
			t.Errorf("%v: a rejected request: %+v", err, last())
		}
		for name, c := range map[string]struct{ kind, body, encoding string }{
			"plain": {"application/octet-stream", content, ""}, "gzip": {"application/octet-stream", gzipped(t, content), "gzip"},
		} {
			x.post(t, guestboot.Port, "/files?path=/in", c.kind, c.body, map[string]string{"Content-Encoding": c.encoding})
			want := observe.Moved{Do: "file.upload", Outcome: "ok", Path: "/in", Bytes: int64(len(content)), Sum: sum(content)}
			if last() != want {
				t.Errorf("%s: %+v", name, last())
			}
		}
		kind, body := multipartForm(t, "d/one", "1", "/two", "22")
		n = count()
		x.post(t, guestboot.Port, "/files", kind, body, nil)
		all := dataOf[observe.Moved](t, x.record, audit.Action)[n:]
		if len(all) != 2 || all[0].Path != "d/one" || all[0].Sum != sum("1") || all[1].Path != "/two" || all[1].Bytes != 2 {
			t.Errorf("upload of two files: got %+v", all)
		}
		x.post(t, guestboot.Port, "/files?path=/full", "application/octet-stream", "x", nil)
		if last().Outcome != "http_507" {
			t.Errorf("upload to a full disk: got %+v", last())
		}
		// If the audit log refuses the entry, the client gets no success.
		x.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.Action })
		if res, _ := x.post(t, guestboot.Port, "/files?path=/in", "application/octet-stream", "x", nil); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("upload without an audit entry: got status %d", res.StatusCode)
		}
		if got, err := get("path=/a"); err == nil {
			t.Errorf("%d bytes were sent, and the download was completed", len(got))
		}
		x.front.CloseClientConnections()
	})
	checkGoroutines(t, before)
}

// A cell of the interpreter is a command, and files are surveyed after it.
func TestCellsAreRecorded(t *testing.T) {
	x := newObservedProxy(t)
	x.setRedactor(valueMask(t))
	script := []string{
		`{"type":"number_of_executions","execution_count":1}`, `{"type":"stdout","text":"a ` + sealedValue[:9] + `","timestamp":"T"}`,
		`{"type":"stdout","text":"` + sealedValue[9:] + `\n","timestamp":"T"}`, `{"type":"stderr","text":"e\n","timestamp":"T"}`, `{"type":"keepalive"}`,
		`{"type":"result","text":"42","json":{"text":["x"]},"is_main_result":true}`,
	}
	fails := false
	x.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Access-Token") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, strings.Join(script, "\n")+"\n")
		if fails {
			_, _ = io.WriteString(w, `{"type":"error","name":"ZeroDivisionError","value":"division","traceback":"Traceback\nboom"}`+"\n")
		}
		_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
	}))
	code := `key = "` + sealedValue + `"` + "\n" + strings.Repeat("x", 10_000)
	clean := strings.Replace(code, sealedValue, "[redacted:KEY]", 1)
	in := fmt.Sprintf(`{"code":%q,"context_id":"c1","env_vars":{"A":"%s"},"later":1}`, code, sealedValue)
	x.post(t, guestboot.InterpreterPort, "/execute", "text/plain", in, nil)
	b, e := x.started(t)[0], x.ended(t)[0]
	if b.How != observe.HowCell || b.Context != "c1" || b.CodeSum != sum(clean) || !b.Cut || !strings.HasPrefix(clean, strings.TrimSuffix(b.Code, "…")) || len(b.Code) > 9000 || fmt.Sprint(b.Env) != "[A]" {
		t.Errorf("start of the cell: got %+v", b)
	}
	out := "a [redacted:KEY]\n"
	if e.Exit == nil || *e.Exit != 0 || *e.Stdout != (observe.Sum{Bytes: int64(len(out)), Sum: sum(out)}) || e.Stderr.Bytes != 2 || e.Error != "" {
		t.Errorf("end of the cell: got %+v", e)
	}
	if text, _ := x.replay(t, 1); text != out+"e\n42\n" {
		t.Errorf("replay of the cell: got %q", text)
	}
	awaitSurvey := func() {
		t.Helper()
		if id := <-x.surveyed; id != boxID {
			t.Errorf("surveyed sandbox: got %q", id)
		}
	}
	awaitSurvey() // before the next cell, which would share it
	fails = true
	x.post(t, guestboot.InterpreterPort, "/%65xecute", "application/json", `{"code":"1/0","language":"python"}`, nil)
	if b, e := x.started(t)[1], x.ended(t)[1]; b.Language != "python" || e.Error != "ZeroDivisionError" || *e.Exit != 1 {
		t.Errorf("start and end of the failed cell: got %+v, %+v", b, e)
	}
	awaitSurvey()
	// A request without code, or without the token, is not in the audit log.
	for _, body := range []string{"", "{}", "[", `{"code":1}`} {
		x.post(t, guestboot.InterpreterPort, "/execute", "application/json", body, nil)
	}
	x.post(t, guestboot.InterpreterPort, "/execute", "application/json", `{"code":"1"}`, map[string]string{"X-Access-Token": "no"})
	if n := len(x.started(t)); n != 2 {
		t.Errorf("%d cells", n)
	}
	for _, entry := range x.record.Entries() {
		if strings.Contains(string(entry.Data), sealedValue) {
			t.Errorf("the value is in %s", entry.Data)
		}
	}
}

// P34: where the policy shows values in outputs, callers see them and the audit log does not.
func TestUnredactedValuesAreNotRecorded(t *testing.T) {
	x := newObservedProxy(t)
	x.setRedactor(maskOf(t, sandbox.RedactorOptions{Patterns: true}, sealedValue))
	guest := &countingGuest{}
	guest.script = func(send func(*pb.ProcessEvent) error) error {
		return errors.Join(send(startEvent(7)), send(printed("stdout", sealedValue)), send(ended()))
	}
	x.serves(guest)
	x.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"error","name":"`+sealedValue+`","value":"v"}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	}))
	s, err := x.client().Start(t.Context(), connect.NewRequest(&pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "curl", Args: []string{sealedValue}, Envs: map[string]string{sealedValue: "1"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var h processOutput
	for s.Receive() {
		h.add(s.Msg().GetEvent())
	}
	if err := s.Err(); err != nil || h.text["stdout"] != sealedValue {
		t.Fatalf("control: the caller got %q, %v", h.text, err)
	}
	if _, body := x.post(t, guestboot.InterpreterPort, "/execute", "application/json", `{"code":"raise `+sealedValue+`"}`, nil); !strings.Contains(body, sealedValue) {
		t.Fatalf("control: %q", body)
	}
	x.files(t)
	x.post(t, guestboot.Port, "/files?path=/in/"+url.QueryEscape(sealedValue), "application/octet-stream", "x", nil)
	redacted := 0
	for _, e := range x.record.Entries() {
		if strings.Contains(string(e.Data), sealedValue) {
			t.Errorf("the value is in %s", e.Data)
		}
		redacted += strings.Count(string(e.Data), "[redacted:KEY]")
	}
	if redacted != 5 { // argument, name, code, error, path
		t.Errorf("%d are redacted", redacted)
	}
}

// A hundred concurrent commands leave a hundred entries of each kind, with numbers from 1 to 100,
// and no goroutine.
func TestConcurrentCommands(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		x := newObservedProxy(t)
		guest := &countingGuest{}
		guest.script = func(send func(*pb.ProcessEvent) error) error {
			return errors.Join(send(startEvent(7)), send(printed("stdout", "hello\n")), send(ended()))
		}
		x.serves(guest)
		const many = 100
		done := make(chan error)
		for range many {
			go func() { done <- x.once() }()
		}
		for range many {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		seen := map[int]bool{}
		for _, e := range x.ended(t) {
			seen[e.N] = true
			if e.Stdout.Sum != sum("hello\n") {
				t.Errorf("end of a command: got %+v", e)
			}
		}
		if len(x.started(t)) != many || len(seen) != many || !seen[1] || !seen[many] {
			t.Errorf("%d started, %d ended", len(x.started(t)), len(seen))
		}
		x.front.CloseClientConnections()
	})
	checkGoroutines(t, before)
}
