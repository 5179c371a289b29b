package lifecycle_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/sandbox"
)

// The processes inside are shown to callers who may see the sandbox, with secrets redacted, and
// limited whatever the guest answers.
func TestCensus(t *testing.T) {
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	r := newRig(t, with)
	ctx := t.Context()
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
	if err != nil {
		t.Fatal(err)
	}
	setAnswer := func(status int, body any) {
		t.Helper()
		text, ok := body.(string)
		if !ok {
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.files = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	setAnswer(200, census.Census{Processes: []census.Process{{PID: 5, Args: []string{"curl", "-H", "Key: " + firstValue}}}, Ports: make([]int, 9999)})
	c, err := r.Census(ctx, alice, sb.ID)
	if err != nil || len(c.Processes) != 1 || len(c.Ports) != census.MaxPorts || !c.Cut {
		t.Fatalf("census: got %+v, %v", c, err)
	}
	if args := strings.Join(c.Processes[0].Args, " "); strings.Contains(args, firstValue) || !strings.HasPrefix(args, "curl -H Key: ") {
		t.Errorf("arguments are shown as %q", args)
	}
	if _, err := r.Census(ctx, bob, sb.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("census for another key: got error %v", err)
	}
	for _, bad := range []struct {
		status int
		body   string
		code   string
	}{
		{404, "", "census_unsupported"}, {500, "x", "guest_failed"}, {200, "no JSON", "guest_failed"},
		{200, `{"processes":[` + strings.Repeat(" ", census.MaxBytes), "guest_failed"},
	} {
		setAnswer(bad.status, bad.body)
		if _, err := r.Census(ctx, alice, sb.ID); fault.CodeOf(err) != bad.code {
			t.Errorf("census after an answer with status %d: got error %v, want %s", bad.status, err, bad.code)
		}
	}
	k.fail(fault.New(fault.Unavailable, "secrets_unavailable", "no secrets"))
	setAnswer(200, census.Census{Processes: []census.Process{{PID: 5, Args: []string{firstValue}}}})
	if c, err := r.Census(ctx, alice, sb.ID); err == nil && len(c.Processes) > 0 && c.Processes[0].Args[0] == firstValue {
		t.Error("a value is shown that cannot be redacted")
	}
	if err := r.Remove(ctx, alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Census(ctx, alice, sb.ID); fault.CodeOf(err) != "sandbox_not_running" {
		t.Errorf("census of an ended sandbox: got error %v", err)
	}
}

// A signal goes to one process other than the first, and its audit entry names the sender.
func TestSignalProcess(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice)
	var got census.Signal
	r.mu.Lock()
	r.files = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != guest.PathSignal || json.NewDecoder(req.Body).Decode(&got) != nil || got.PID == 99 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	r.mu.Unlock()
	if err := r.SignalProcess(ctx, alice, sb.ID, 7, syscall.SIGTERM); err != nil || got != (census.Signal{PID: 7, Signal: 15}) {
		t.Errorf("signal: the guest got %+v, %v", got, err)
	}
	if err := r.SignalProcess(ctx, alice, sb.ID, 99, syscall.SIGTERM); fault.CodeOf(err) != "process_not_found" {
		t.Errorf("signal to an unknown process: got error %v", err)
	}
	for _, bad := range []struct{ pid, sig int }{{1, 15}, {0, 15}, {-7, 15}, {7, 0}, {7, 64}} {
		if err := r.SignalProcess(ctx, alice, sb.ID, bad.pid, syscall.Signal(bad.sig)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("process and signal %+v: got error %v, want Invalid", bad, err)
		}
	}
	if err := r.SignalProcess(ctx, bob, sb.ID, 7, syscall.SIGTERM); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another key: %v", err)
	}
	found := false
	for _, e := range r.record.Entries(audit.Action) {
		var a payload.Action
		if err := json.Unmarshal(e.Data, &a); err != nil {
			t.Fatal(err)
		}
		found = found || e.Actor == "key:alice" && a.Do == "process.signal" && a.Outcome == "ok" && e.Sandbox == sb.ID
	}
	if !found {
		t.Error("the signal has no audit entry")
	}
}
