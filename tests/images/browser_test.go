package images_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// browserPort is the port of the template's browser.
const browserPort = "49222"

// TestBrowserTemplate builds the recipe browser, starts a sandbox of it from its memory, and drives
// its Chromium through a server with the unmodified clients from npm. The clients' part of the test
// is browser/drive.test.mjs (P79, P80, P81).
//
// Building takes many minutes. CRANNOG_TEST_BROWSER_STATE names a state directory that has the
// template already; it is kept.
func TestBrowserTemplate(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node)
	state := os.Getenv("CRANNOG_TEST_BROWSER_STATE")
	if state == "" {
		state = buildWithMemory(t, "browser")
	}
	server := servetest.Start(t, program, state)
	client := server.Client(t)
	dir := npmInstalled(t, "browser")
	measure(t, server, dir)
	sb, err := client.Create(t.Context(), crannog.Template("browser"), crannog.Timeout(time.Hour), crannog.Net("policy"), crannog.Policy(npmPolicy(t)))
	if err != nil {
		t.Fatal(err)
	}
	serveSite(t, sb)
	// A restored sandbox has not executed Chromium: the browser was in its memory.
	if n := len(browserStarts(t, client, sb.ID())); n != 0 {
		t.Errorf("the new sandbox has started a browser %d times, want none: it continues from memory", n)
	}
	drive(t, server, sb, dir)
	testKilledBrowser(t, client, sb)
	testBrowserCommand(t, state, dir)
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	servetest.NothingLeft(t, state, sb.ID())
}

// npmPolicy permits two paths of the npm registry, and no other host.
func npmPolicy(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"policy": "v1", "network": map[string]any{
		"unlisted": "deny", "hosts": []any{reading(t, npmRegistry, 443, "/ms/**")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// serveSite starts a web server in the sandbox, because service workers need a page of localhost.
func serveSite(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	files := sb.FS().WithContext(t.Context())
	if err := files.MkdirAll("home/user/site"); err != nil {
		t.Fatal(err)
	}
	load := make([]byte, 3<<20)
	_, _ = rand.Read(load)
	content := map[string][]byte{"load.bin": load}
	for _, name := range []string{"site.pl", "page.html", "worker.js"} {
		data, err := os.ReadFile(filepath.Join("browser", name))
		if err != nil {
			t.Fatal(err)
		}
		content[name] = data
	}
	for name, data := range content {
		if err := files.WriteFile("home/user/site/"+name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The port is open when perl writes its line.
	cmd := sb.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", "cd /home/user/site && exec perl site.pl")
	line, w := io.Pipe()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(line, first); err != nil || string(first) != "ready\n" {
		t.Fatalf("the web server printed %q: %v", first, err)
	}
}

// drive runs the clients' tests.
func drive(t *testing.T, server *servetest.Server, sb *crannog.Sandbox, dir string) {
	t.Helper()
	nodeTests(t, dir, "CRANNOG_URL="+server.URL, "CRANNOG_SANDBOX="+sb.ID(), "CRANNOG_TOKEN="+sb.Info().AccessToken,
		"CRANNOG_REACHED=https://"+npmRegistry+"/ms/latest", "CRANNOG_DENIED=https://"+npmRegistry+"/left-pad")
}

// measure logs what measure.mjs prints.
func measure(t *testing.T, server *servetest.Server, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "measure.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CRANNOG_URL="+server.URL, "CRANNOG_KEY="+server.Key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("measure: %v", err)
	}
	t.Logf("%s", out)
}

// testKilledBrowser kills the browser as the kernel would, without a chance to clean up.
func testKilledBrowser(t *testing.T, client *crannog.Client, sb *crannog.Sandbox) {
	t.Helper()
	before := browserStatus(t, sb)
	all, err := sb.AllProcesses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, p := range all.Processes {
		// Chromium rewrites its arguments as one.
		if line := strings.Join(p.Args, " "); strings.Contains(line, " --remote-debugging-port=0") && !strings.Contains(line, " --type=") {
			pid = p.PID
		}
	}
	if pid == 0 {
		t.Fatalf("no browser in %+v", all.Processes)
	}
	if out, err := sb.CommandContext(t.Context(), "sh", "-c", fmt.Sprint("kill -9 ", pid)).CombinedOutput(); err != nil {
		t.Fatalf("kill: %v %s", err, out)
	}
	hosttest.EventuallyNoError(t, func() error {
		if got := browserStatus(t, sb); got.Starts != before.Starts+1 || !got.Running || !strings.HasSuffix(got.Ends[len(got.Ends)-1].Reason, "signal: killed") {
			return fmt.Errorf("status: got %+v after %+v", got, before)
		}
		return nil
	})
	// The sandbox's kernel has reported the end and the next start, with its reason.
	hosttest.EventuallyNoError(t, func() error {
		if !killed(t, client, sb.ID(), pid) {
			return fmt.Errorf("the audit log has no exit of process %d with signal 9", pid)
		}
		starts := browserStarts(t, client, sb.ID())
		if n := len(starts); n == 0 || !strings.HasSuffix(starts[n-1], "because the browser ended: signal: killed") {
			return fmt.Errorf("the audit log has these starts: %q", starts)
		}
		return nil
	})
}

// status is the answer of the browser's port about the browser.
type status struct {
	Running bool
	Starts  int
	Ends    []struct{ Reason string }
}

func browserStatus(t *testing.T, sb *crannog.Sandbox) (got status) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:"+browserPort+"/crannog/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := sb.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return got
}

// browserStarts returns the first arguments with which the sandbox has started browsers.
func browserStarts(t *testing.T, client *crannog.Client, id string) (first []string) {
	t.Helper()
	for e, err := range client.Record(t.Context(), crannog.RecordOptions{Sandbox: id, Kinds: []string{"exec"}}) {
		if err != nil {
			t.Fatal(err)
		}
		var data struct{ Argv []string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if len(data.Argv) > 1 && slices.Contains(data.Argv, "--remote-debugging-port=0") && !strings.HasPrefix(data.Argv[1], "--type=") {
			first = append(first, data.Argv[1])
		}
	}
	return first
}

// killed reports whether the audit log has the end of a process by SIGKILL.
func killed(t *testing.T, client *crannog.Client, id string, pid int) bool {
	t.Helper()
	for e, err := range client.Record(t.Context(), crannog.RecordOptions{Sandbox: id, Kinds: []string{"exit"}}) {
		if err != nil {
			t.Fatal(err)
		}
		var data struct{ PID, Signal int }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if data.PID == pid && data.Signal == 9 {
			return true
		}
	}
	return false
}
