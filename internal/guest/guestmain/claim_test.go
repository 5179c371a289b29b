package guestmain

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// claim sends a claim and returns its answer.
func (r *testGuest) claim(cfg guest.Config, token string) (int, string) {
	r.t.Helper()
	cfg.Renew = guest.Claimed
	body, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.call("POST", guest.PathClaim, string(body), guest.ControlHeader, token)
}

func TestClaimConfiguresSandbox(t *testing.T) {
	warm := config()
	warm.Files = []guest.File{{Path: "/etc/bundle", Mode: 0o644, Data: []byte("pool\n"), Append: true}}
	r := boot(t, warm)
	machine := r.file("etc/machine-id")
	next := copiedConfig()
	next.Checks = probe.Checks{DiskBytes: 1}
	if code, body := r.claim(next, "control"); code != 409 || !strings.Contains(body, probe.Failure) {
		t.Fatalf("with a check that fails: %d %s", code, body)
	}
	if code, _ := r.call("GET", "/envs", "", "X-Access-Token", "access2"); code != 401 {
		t.Errorf("token of the failed claim: got status %d, want 401", code)
	}
	next.Checks = probe.Checks{DiskBytes: 1 << 62, ReadOnly: []string{filepath.Join(r.root, "absent")}}
	next.Files = []guest.File{{Path: "/etc/bundle", Mode: 0o644, Data: []byte("mine\n"), Append: true}}
	if code, body := r.claim(next, "control"); code != 204 {
		t.Fatalf("claim: got %d %s, want 204", code, body)
	}
	if code, _ := r.claim(next, "control"); code != 404 {
		t.Errorf("second claim with the old token: got status %d, want 404", code)
	}
	r.access = "access2"
	if got := r.shell(`test "$(uname -n) $E2B_SANDBOX_ID $WHOSE" = "another copy the copy's" && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("name and variables inside: got %q, want those of the claim", got)
	}
	if got := r.file("etc/bundle"); got != "mine\n" {
		t.Errorf("bundle: got %q, want mine", got)
	}
	if got := r.file("etc/machine-id"); got != machine {
		t.Errorf("machine ID after the claim: got %q, want %q", got, machine)
	}
}

// A copy loads the configured languages before it is ready.
func TestCopyPreloadsLanguages(t *testing.T) {
	r := boot(t, config())
	if n := len(childrenOf(r.cmd.Process.Pid)); n != 0 {
		t.Errorf("before the copy: got %d child processes, want 0", n)
	}
	next := copiedConfig()
	next.Preload = []string{"python"}
	r.configure(next)
	r.sendEvent("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest printed %q", output)
	}
	if n := len(childrenOf(r.cmd.Process.Pid)); n != 1 {
		t.Errorf("after the copy: got %d child processes, want 1", n)
	}
}

// The first execution after a claim uses a worker that was started before the claim, with the
// environment of the claim.
func TestClaimUsesPreloadedWorker(t *testing.T) {
	warm := config()
	warm.Preload = []string{"python"}
	r := boot(t, warm)
	before := len(childrenOf(r.cmd.Process.Pid))
	if before != 1 {
		t.Errorf("before the claim: got %d child processes, want 1", before)
	}
	if code, body := r.claim(copiedConfig(), "control"); code != 204 {
		t.Fatalf("claim: got %d %s, want 204", code, body)
	}
	conn, err := r.first.Dial(t.Context(), guestboot.InterpreterPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	code := `{"code":"import os; print(os.environ['WHOSE'] + ' ' + os.environ['E2B_SANDBOX_ID'])"}`
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://guest/execute", strings.NewReader(code))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Access-Token", "access2")
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(body), "the copy's copy") {
		t.Errorf("execution: got %s, %v, want the variables of the claim", body, err)
	}
	if now := len(childrenOf(r.cmd.Process.Pid)); now != before {
		t.Errorf("after the claim: got %d child processes, want %d", now, before)
	}
}
