package images_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// TestDesktopTemplate builds the recipe desktop, and uses sandboxes of it through a server with the
// unmodified @e2b/desktop from npm. Its part of the test is desktop/drive.test.mjs (P89, P90).
//
// Building takes many minutes. CRANNOG_TEST_DESKTOP_STATE names a state directory that has the
// template already; it is kept.
func TestDesktopTemplate(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node)
	state := os.Getenv("CRANNOG_TEST_DESKTOP_STATE")
	if state == "" {
		state = buildWithMemory(t, "desktop", "--memory", "2g")
	}
	server := servetest.Start(t, program, state)
	client := server.Client(t)
	t.Run("sdk", func(t *testing.T) { driveDesktop(t, server) })
	sb, err := client.Create(t.Context(), crannog.Template("desktop"), crannog.Timeout(time.Hour), crannog.Net("policy"), crannog.Policy(npmPolicy(t)))
	if err != nil {
		t.Fatal(err)
	}
	testScreenOfCreate(t, client, sb)
	testPolicyOfDesktop(t, sb)
	testReplacedScreen(t, client, sb)
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	servetest.NothingLeft(t, state, sb.ID())
}

// driveDesktop runs the tests of the SDK.
func driveDesktop(t *testing.T, server *servetest.Server) {
	t.Helper()
	nodeTests(t, npmInstalled(t, "desktop"), "E2B_API_URL="+server.URL, "E2B_SANDBOX_URL="+server.URL, "E2B_API_KEY="+server.Key)
}

// testScreenOfCreate checks that a new sandbox has a screen that it did not start: no stream is
// open, and the audit log has no start of the screen's server.
func testScreenOfCreate(t *testing.T, client *crannog.Client, sb *crannog.Sandbox) {
	t.Helper()
	if got, err := desktopShell(t, sb, "/usr/local/bin/crannog-desktop-ready && pgrep -xc xfce4-session; netstat -tln | grep -cE ':(5900|6080) '"); got != "1\n0\n" {
		t.Errorf("a new sandbox: got %q, %v, want one session and no open port of a stream", got, err)
	}
	if n := screenStarts(t, client, sb.ID()); n != 0 {
		t.Errorf("the sandbox has started a screen %d times, want none: it continues from memory", n)
	}
}

// testReplacedScreen starts a screen as a client does that wants another size: it replaces the first,
// and the audit log has its start.
func testReplacedScreen(t *testing.T, client *crannog.Client, sb *crannog.Sandbox) {
	t.Helper()
	const replace = `setsid Xvfb :0 -ac -screen 0 640x480x24 >/dev/null 2>&1 </dev/null & for i in $(seq 600); do xrandr 2>/dev/null | grep -q ' 640x480+0+0' && echo replaced && exit; sleep 0.1; done`
	if got, err := desktopShell(t, sb, replace); got != "replaced\n" {
		t.Errorf("another screen: got %q, %v", got, err)
	}
	hosttest.EventuallyNoError(t, func() error {
		if n := screenStarts(t, client, sb.ID()); n != 1 {
			return fmt.Errorf("the audit log has %d starts of a screen, want 1", n)
		}
		return nil
	})
}

// screenStarts returns how often the sandbox has started the server of a screen.
func screenStarts(t *testing.T, client *crannog.Client, id string) (n int) {
	t.Helper()
	for e, err := range client.Record(t.Context(), crannog.RecordOptions{Sandbox: id, Kinds: []string{"exec"}}) {
		if err != nil {
			t.Fatal(err)
		}
		var data struct{ Argv []string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if len(data.Argv) > 0 && data.Argv[0] == "/usr/bin/Xvfb" {
			n++
		}
	}
	return n
}

// testPolicyOfDesktop checks that the desktop's browser reaches what the policy permits, with the
// certificate of the gateway, and nothing else.
func testPolicyOfDesktop(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	const dump = "chromium --headless --user-data-dir=/tmp/profile --dump-dom https://" + npmRegistry
	if out, err := desktopShell(t, sb, dump+"/ms/latest 2>/dev/null"); err != nil || !strings.Contains(out, `"name": "ms"`) {
		t.Errorf("a permitted page: %v, got %q, want the metadata of the package ms", err, out)
	}
	if out, err := desktopShell(t, sb, dump+"/left-pad 2>/dev/null"); err != nil || !strings.Contains(out, "Crannog blocked this page") || !strings.Contains(out, "host:registry.npmjs.org") || strings.Contains(out, `"versions"`) {
		t.Errorf("a denied page: %v, got %q, want the gateway's reason", err, out)
	}
}

// desktopShell runs a shell line in the sandbox, and returns its standard output.
func desktopShell(t *testing.T, sb *crannog.Sandbox, line string) (out string, err error) {
	t.Helper()
	data, err := sb.CommandContext(t.Context(), "bash", "-lc", line).Output()
	return string(data), err
}
