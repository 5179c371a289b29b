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
func (r *running) claim(cfg guest.Config, token string) (int, string) {
	r.t.Helper()
	cfg.Renew = guest.Claimed
	body, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.call("POST", guest.PathClaim, string(body), guest.ControlHeader, token)
}

func TestClaim(t *testing.T) {
	waiting := config()
	waiting.Files = []guest.File{{Path: "/etc/bundle", Mode: 0o644, Data: []byte("pool\n"), Append: true}}
	r := boot(t, waiting)
	machine := r.file("etc/machine-id")
	next := copied()
	next.Checks = probe.Checks{DiskBytes: 1}
	if code, body := r.claim(next, "control"); code != 409 || !strings.Contains(body, probe.Failure) {
		t.Fatalf("with a check that fails: %d %s", code, body)
	}
	if code, _ := r.call("GET", "/envs", "", "X-Access-Token", "access2"); code != 401 {
		t.Errorf("its token: %d", code)
	}
	next.Checks = probe.Checks{DiskBytes: 1 << 62, ReadOnly: []string{filepath.Join(r.root, "absent")}}
	next.Files = []guest.File{{Path: "/etc/bundle", Mode: 0o644, Data: []byte("mine\n"), Append: true}}
	if code, body := r.claim(next, "control"); code != 204 {
		t.Fatalf("%d %s", code, body)
	}
	if code, _ := r.claim(next, "control"); code != 404 {
		t.Errorf("again, by the old token: %d", code)
	}
	r.access = "access2"
	if got := r.shell(`test "$(uname -n) $E2B_SANDBOX_ID $WHOSE" = "another copy the copy's" && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("inside: %q", got)
	}
	if got := r.file("etc/bundle"); got != "mine\n" {
		t.Errorf("bundle: %q", got)
	}
	if got := r.file("etc/machine-id"); got != machine {
		t.Errorf("the machine is called %q, and was %q", got, machine)
	}
}

// Libraries that the copied state lacks are loaded in the copy before it is ready.
func TestCopyPreloads(t *testing.T) {
	r := boot(t, config())
	if n := len(childrenOf(r.cmd.Process.Pid)); n != 0 {
		t.Errorf("%d processes run before", n)
	}
	next := copied()
	next.Preload = []string{"python"}
	r.configure(next)
	r.happens("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest says %q", output)
	}
	if n := len(childrenOf(r.cmd.Process.Pid)); n != 1 {
		t.Errorf("%d processes wait", n)
	}
}

// The first execution uses a worker that was started before there was a user, and that now runs for
// the user.
func TestPreloadedIsClaimed(t *testing.T) {
	waiting := config()
	waiting.Preload = []string{"python"}
	r := boot(t, waiting)
	before := len(childrenOf(r.cmd.Process.Pid))
	if before != 1 {
		t.Errorf("%d processes wait", before)
	}
	if code, body := r.claim(copied(), "control"); code != 204 {
		t.Fatalf("%d %s", code, body)
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
		t.Errorf("%s %v", body, err)
	}
	if now := len(childrenOf(r.cmd.Process.Pid)); now != before {
		t.Errorf("%d processes run", now)
	}
}
