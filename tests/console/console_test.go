package console_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// createSandbox creates a sandbox without network access, and returns its ID.
func (b *browser) createSandbox() string {
	b.t.Helper()
	var made struct{ ID string }
	b.call("POST", "/v1/sandboxes", `{"access":{"net":"policy","level":"standard"},"timeout_seconds":600}`, &made)
	return made.ID
}

// exec runs a shell line in a sandbox and returns its output.
func (b *browser) exec(id, line string) string {
	b.t.Helper()
	cmd, err := json.Marshal(map[string]any{"cmd": []string{"sh", "-c", line}})
	if err != nil {
		b.t.Fatal(err)
	}
	var out struct{ Stdout string }
	b.call("POST", "/v1/sandboxes/"+id+"/exec", string(cmd), &out)
	return strings.TrimSpace(out.Stdout)
}

// TestPageReceivesSandboxEvents checks that a page receives a sandbox's start, commands, denials
// with their rules, approval requests, and end.
func TestPageReceivesSandboxEvents(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	b := signIn(t, s, "Ann", "operator")
	page, fleet := b.follow("topics=approvals", ""), b.follow("topics=fleet", "")
	fleet.await("fleet", `"full":true`)
	page.await("approvals")
	id := b.createSandbox()
	fleet.await("fleet", id, `"running"`, `"boundary":"userspace-kernel"`)
	b.call("PUT", "/events/"+page.name, fmt.Sprintf(`{"topics":["approvals","record:%s","network:%s"],"watch":[%q]}`, id, id, id), nil)

	if got := b.exec(id, "echo $((6*7)); : >/tmp/made"); got != "42" {
		t.Errorf("the command printed %q, want 42", got)
	}
	page.await("entry", `"command.started"`, "console:"+b.id, "6*7")
	page.await("entry", `"command.ended"`, `"exit":0`)
	fleet.await("fleet", id, `"exit_code":0`, `"denied":0`) // the sandbox's own checks are not counted

	b.exec(id, "python3 -c 'import urllib.request as u; u.urlopen(\"http://169.254.169.254/latest\", timeout=5)'; true")
	var flow struct{ Sandbox, Host, Effect, Rule, Kind string }
	e := page.await("flow", "169.254.169.254", `"deny"`)
	if err := json.Unmarshal(e.data, &flow); err != nil || flow.Sandbox != id || flow.Rule != "floor.address" || flow.Effect != "deny" {
		t.Errorf("the denied flow: got %s, %v, want it denied by floor.address", e.data, err)
	}
	fleet.await("fleet", id, `"attention_why":"a request was denied"`)
	page.await("metrics", id, `"memory"`)

	b.call("POST", "/v1/sandboxes/"+id+"/access/ask", `{"host":"example.com","reason":"to test"}`, nil)
	var asked struct{ Approval struct{ ID string } }
	e = page.await("approval", `"pending"`, id)
	if err := json.Unmarshal(e.data, &asked); err != nil {
		t.Fatal(err)
	}
	fleet.await("fleet", id, `"pending":1`)
	b.call("POST", "/v1/approvals/"+asked.Approval.ID+"/approve", `{"reason":"yes"}`, nil)
	page.await("approval", asked.Approval.ID, `"approved"`)

	b.call("DELETE", "/v1/sandboxes/"+id, "", nil)
	page.await("entry", `"sandbox.ended"`)
	fleet.await("fleet", id, `"stopped"`)
	b.call("DELETE", "/session", "", nil)
	page.requireClosed()
	fleet.requireClosed()
}

// TestPageUsesSandbox uses files, processes, ports, cells and recordings as a page does.
func TestPageUsesSandbox(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	b, viewer := signIn(t, s, "Ann", "operator"), signIn(t, s, "Eve", "viewer")
	id := b.createSandbox()
	at := "/sandboxes/" + id
	b.call("PUT", at+"/file?path=/tmp/page.html", "<script>1</script>", nil)
	var files struct{ Entries []struct{ Name, Type string } }
	viewer.call("GET", at+"/files?path=/tmp", "", &files)
	if !slices.Contains(files.Entries, struct{ Name, Type string }{"page.html", "file"}) {
		t.Errorf("the list of files: got %+v, want page.html in it", files)
	}
	res, body := b.do("GET", at+"/file?path=/tmp/page.html", "")
	if string(body) != "<script>1</script>" || res.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the download of page.html: got %s with the headers %v, want an attachment", body, res.Header)
	}
	if res, _ := viewer.do("GET", at+"/file?path=/tmp/page.html", ""); res.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer downloads a file: got %s, want 403", res.Status)
	}

	// Python's server looks a name up between bind and listen, so a bound port (1FBB) is not enough:
	// its state must be "listening" (0A).
	b.exec(id, "(while :; do :; done) >/dev/null 2>&1 </dev/null & python3 -m http.server 8123 >/dev/null 2>&1 </dev/null & i=0; until grep -q ':1FBB .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ $i -gt 600 ]; do sleep 0.05; i=$((i+1)); done")
	var ports struct {
		Ports []struct {
			Port int
			URL  string `json:"preview_url"`
		}
	}
	viewer.call("GET", at+"/ports", "", &ports)
	if len(ports.Ports) != 1 || ports.Ports[0].Port != 8123 || !strings.HasPrefix(ports.Ports[0].URL, "http://8123-"+id+".localhost:") {
		t.Fatalf("the ports: got %+v, want only 8123", ports)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimSuffix(strings.TrimPrefix(ports.Ports[0].URL, "http://"), "/")
	preview, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	preview.Body.Close()
	if preview.StatusCode != http.StatusOK || !strings.Contains(preview.Header.Get("Server"), "Python") {
		t.Errorf("the preview is %s from %q", preview.Status, preview.Header.Get("Server"))
	}

	type process struct {
		PID, PPID int
		Args      []string
		CPU       *float64
		Memory    int64
	}
	var list struct{ Processes []process }
	busy := func(p process) bool {
		return p.PID > 1 && p.CPU != nil && *p.CPU > 0.02 && *p.CPU < 1.5 && !slices.Contains(p.Args, "http.server")
	}
	hosttest.EventuallyNoError(t, func() error {
		viewer.call("GET", at+"/processes", "", &list)
		if !slices.ContainsFunc(list.Processes, busy) {
			return fmt.Errorf("no process is busy: %+v", list)
		}
		return nil
	})
	loop := list.Processes[slices.IndexFunc(list.Processes, busy)].PID
	b.call("DELETE", fmt.Sprintf("%s/processes/%d?signal=KILL", at, loop), "", nil)
	hosttest.EventuallyNoError(t, func() error {
		viewer.call("GET", at+"/processes", "", &list)
		if slices.ContainsFunc(list.Processes, func(p process) bool { return p.PID == loop }) {
			return fmt.Errorf("process %d still exists: %+v", loop, list)
		}
		return nil
	})
	server := slices.IndexFunc(list.Processes, func(p process) bool { return slices.Contains(p.Args, "http.server") })
	if server < 0 || list.Processes[server].Memory < 1<<20 || list.Processes[server].PPID != 1 {
		t.Errorf("the processes: got %+v, want the HTTP server with its memory and parent", list)
	}

	_, cell := b.do("POST", at+"/cells", `{"code":"print('from a cell')\n6*7"}`)
	if !strings.Contains(string(cell), `{"type":"stdout","text":"from a cell\n"}`) || !strings.Contains(string(cell), `"text/plain":"42"`) || !strings.Contains(string(cell), `"type":"end"`) {
		t.Errorf("the cell printed %s", cell)
	}
	var recordings struct{ Recordings []struct{ ID, How string } }
	viewer.call("GET", "/v1"+at+"/recordings", "", &recordings)
	if len(recordings.Recordings) != 2 || recordings.Recordings[1].How != "cell" {
		t.Fatalf("the recordings: got %+v, want 2, the last one of a cell", recordings)
	}
	if recording := viewer.call("GET", "/v1"+at+"/recordings/"+recordings.Recordings[1].ID, "", nil); !strings.Contains(string(recording), "from a cell") {
		t.Errorf("the recording of the cell: got %s, want its output", recording)
	}
}

// TestTerminalHasOneController checks that two people can see one terminal and that only the one
// with control can type. A viewer only watches.
func TestTerminalHasOneController(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	ann, bob, eve := signIn(t, s, "Ann", "operator"), signIn(t, s, "Bob", "operator"), signIn(t, s, "Eve", "viewer")
	id := ann.createSandbox()
	page := eve.follow("topics=record:"+id, "")
	var term struct{ PID int }
	ann.call("POST", "/sandboxes/"+id+"/terminals", `{"cols":90,"rows":30}`, &term)
	at := fmt.Sprintf("/sandboxes/%s/terminals/%d/attach?cols=120&rows=33", id, term.PID)
	a, b := ann.attach(at), bob.attach(at)
	a.await("ready", `"controller":null`)
	b.await("ready", "")
	a.typeKeys("echo early\r")
	a.await("error", "no_control")
	a.sendMessage(`{"type":"take"}`)
	a.await("control", `"mine":true`)
	b.await("control", `"controller":"Ann","mine":false`)
	page.await("entry", `"terminal.control"`, "console:"+ann.id, `"do":"take"`)
	a.typeKeys("echo $((6*7))-$(tput cols 2>/dev/null || stty size | cut -d' ' -f2)\r")
	a.await("", "42-120")
	b.await("", "42-120")
	b.sendMessage(`{"type":"take"}`)
	b.await("control", `"mine":true`)
	a.await("control", `"controller":"Bob","mine":false`)
	page.await("entry", `"terminal.control"`, "console:"+bob.id, `"displaced":"console:`+ann.id)
	a.typeKeys("echo displaced\r")
	a.await("error", "no_control")
	e := eve.attach(at)
	e.await("", "42-120") // the earlier output
	e.sendMessage(`{"type":"take"}`)
	e.await("error", "scope_too_small")
	b.typeKeys("exit 7\r")
	for _, each := range []*screen{a, b, e} {
		each.await("exit", `"exit_code":7`)
	}
	page.await("entry", `"command.ended"`, `"exit":7`)
	ann.call("POST", "/sandboxes/"+id+"/terminals", `{"cols":90,"rows":30,"command":["/bin/cat"]}`, &term)
	at = fmt.Sprintf("/sandboxes/%s/terminals/%d/attach", id, term.PID)
	a, b = ann.attach(at), bob.attach(at)
	b.await("ready", "")
	b.sendMessage(`{"type":"take"}`)
	a.await("control", `"controller":"Bob"`)
	bob.call("DELETE", "/session", "", nil)
	b.requireClosed() // the session's end closes it
	a.await("control", `"controller":null`)
	s.Stop(t)
	a.requireClosed() // the server's stop closes it, without waiting for the page
	page.requireClosed()
	if strings.Contains(a.output, "early") || strings.Contains(a.output, "displaced") {
		t.Errorf("keys without control reached the terminal: %q", a.output)
	}
}

// TestPageAttachesToSDKTerminal checks that a page can use a terminal that an SDK opened, and that
// the program continues when the page is closed.
func TestPageAttachesToSDKTerminal(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	b := signIn(t, s, "Ann", "operator")
	sb, err := s.Client(t).Create(t.Context(), crannog.Timeout(5*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cmd := sb.Command("/bin/cat")
	cmd.TTY = &crannog.Size{Cols: 70, Rows: 20}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var list struct{ Terminals []struct{ PID, Cols int } }
	b.call("GET", "/sandboxes/"+sb.ID()+"/terminals", "", &list)
	if len(list.Terminals) != 1 || list.Terminals[0].PID != cmd.PID() || list.Terminals[0].Cols != 70 {
		t.Fatalf("the terminals: got %+v, want the one of the SDK", list)
	}
	page := b.attach(fmt.Sprintf("/sandboxes/%s/terminals/%d/attach", sb.ID(), cmd.PID()))
	page.await("ready", `"cols":70`)
	page.sendMessage(`{"type":"take"}`)
	page.await("control", `"mine":true`)
	page.typeKeys("from a page\r")
	page.await("", "from a page\r\nfrom a page")
	for range 2 {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) != "from a page" {
			t.Errorf("the SDK read %q", lines.Text())
		}
	}
	page.conn.Close(websocket.StatusNormalClosure, "")
	if _, err := io.WriteString(in, "from the SDK\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) != "from the SDK" {
			t.Errorf("the SDK read %q", lines.Text())
		}
	}
	if _, err := io.WriteString(in, "\x04"); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestPageContinuesAfterServerKill checks that a page continues after its server was killed and
// restarted: no entry is lost or repeated, and the open terminal still exists.
func TestPageContinuesAfterServerKill(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	b := signIn(t, s, "Ann", "operator")
	id := b.createSandbox()
	var term struct{ PID int }
	b.call("POST", "/sandboxes/"+id+"/terminals", `{"cols":80,"rows":24,"command":["/bin/cat"]}`, &term)
	page := b.follow("topics=record", "")
	var seen []int64
	addEntry := func(e event) {
		t.Helper()
		if e.name != "entry" {
			return
		}
		seq, err := strconv.ParseInt(e.id, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, seq)
	}
	last := ""
	for round := range 3 {
		for range 5 {
			b.exec(id, "/bin/true; date >>/tmp/log")
		}
		for wanted := 4; wanted > 0; wanted-- {
			e := <-page.events
			addEntry(e)
			last = e.id
		}
		// The connection breaks while data is being sent.
		s.Kill()
		page.stop()
		s = servetest.Start(t, program, state)
		b.base = s.URL
		if res, body := b.do("GET", "/session", ""); res.StatusCode != http.StatusOK {
			t.Fatalf("round %d: the session is gone: %s %s", round, res.Status, body)
		}
		page = b.follow("topics=record", last)
	}
	b.exec(id, "echo the-end")
	for done := false; !done; {
		e := page.await("entry")
		addEntry(e)
		done = strings.Contains(string(e.data), "the-end") && strings.Contains(string(e.data), "command.started")
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] != seen[i-1]+1 {
			t.Fatalf("entry %d came after %d", seen[i], seen[i-1])
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d entries", len(seen))
	}
	w := b.attach(fmt.Sprintf("/sandboxes/%s/terminals/%d/attach", id, term.PID))
	w.await("ready", `"cols":80`)
	w.sendMessage(`{"type":"take"}`)
	w.await("control", `"mine":true`)
	w.typeKeys("still here\r")
	w.await("", "still here\r\nstill here")
	b.call("DELETE", "/v1/sandboxes/"+id, "", nil)
}
