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

// make creates a sandbox without network access, and returns its ID.
func (b *browser) make() string {
	b.t.Helper()
	var made struct{ ID string }
	b.ask("POST", "/v1/sandboxes", `{"access":{"net":"policy","level":"standard"},"timeout_seconds":600}`, &made)
	return made.ID
}

func (b *browser) exec(id, line string) string {
	b.t.Helper()
	cmd, err := json.Marshal(map[string]any{"cmd": []string{"sh", "-c", line}})
	if err != nil {
		b.t.Fatal(err)
	}
	var out struct{ Stdout string }
	b.ask("POST", "/v1/sandboxes/"+id+"/exec", string(cmd), &out)
	return strings.TrimSpace(out.Stdout)
}

// A page sees a sandbox start, its commands, its denials with their rules, its approval requests,
// and its end.
func TestWatch(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	b := signIn(t, s, "Ann", "operator")
	page, fleet := b.follow("topics=approvals", ""), b.follow("topics=fleet", "")
	fleet.until("fleet", `"full":true`)
	page.until("approvals")
	id := b.make()
	fleet.until("fleet", id, `"running"`, `"boundary":"userspace-kernel"`)
	b.ask("PUT", "/events/"+page.name, fmt.Sprintf(`{"topics":["approvals","record:%s","network:%s"],"watch":[%q]}`, id, id, id), nil)

	if got := b.exec(id, "echo $((6*7)); : >/tmp/made"); got != "42" {
		t.Errorf("it printed %q", got)
	}
	page.until("entry", `"command.started"`, "console:"+b.id, "6*7")
	page.until("entry", `"command.ended"`, `"exit":0`)
	fleet.until("fleet", id, `"exit_code":0`, `"denied":0`) // its own checks are not denials

	b.exec(id, "python3 -c 'import urllib.request as u; u.urlopen(\"http://169.254.169.254/latest\", timeout=5)'; true")
	var flow struct{ Sandbox, Host, Effect, Rule, Kind string }
	e := page.until("flow", "169.254.169.254", `"deny"`)
	if err := json.Unmarshal(e.data, &flow); err != nil || flow.Sandbox != id || flow.Rule != "floor.address" || flow.Effect != "deny" {
		t.Errorf("%s, %v", e.data, err)
	}
	fleet.until("fleet", id, `"attention_why":"a request was denied"`)
	page.until("metrics", id, `"memory"`)

	b.ask("POST", "/v1/sandboxes/"+id+"/access/ask", `{"host":"example.com","reason":"to test"}`, nil)
	var asked struct{ Approval struct{ ID string } }
	e = page.until("approval", `"pending"`, id)
	if err := json.Unmarshal(e.data, &asked); err != nil {
		t.Fatal(err)
	}
	fleet.until("fleet", id, `"pending":1`)
	b.ask("POST", "/v1/approvals/"+asked.Approval.ID+"/approve", `{"reason":"yes"}`, nil)
	page.until("approval", asked.Approval.ID, `"approved"`)

	b.ask("DELETE", "/v1/sandboxes/"+id, "", nil)
	page.until("entry", `"sandbox.ended"`)
	fleet.until("fleet", id, `"stopped"`)
	b.ask("DELETE", "/session", "", nil)
	page.over()
	fleet.over()
}

// A page uses a sandbox: files, processes with their usage, ports, cells, and recordings to play.
func TestInside(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	b, viewer := signIn(t, s, "Ann", "operator"), signIn(t, s, "Eve", "viewer")
	id := b.make()
	at := "/sandboxes/" + id
	b.ask("PUT", at+"/file?path=/tmp/page.html", "<script>1</script>", nil)
	var files struct{ Entries []struct{ Name, Type string } }
	viewer.ask("GET", at+"/files?path=/tmp", "", &files)
	if !slices.Contains(files.Entries, struct{ Name, Type string }{"page.html", "file"}) {
		t.Errorf("%+v", files)
	}
	res, body := b.do("GET", at+"/file?path=/tmp/page.html", "")
	if string(body) != "<script>1</script>" || res.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%s %v", body, res.Header)
	}
	if res, _ := viewer.do("GET", at+"/file?path=/tmp/page.html", ""); res.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer takes a file out: %s", res.Status)
	}

	b.exec(id, "(while :; do :; done) >/dev/null 2>&1 </dev/null & python3 -m http.server 8123 >/dev/null 2>&1 </dev/null & i=0; until grep -q :1FBB /proc/net/tcp /proc/net/tcp6 || [ $i -gt 600 ]; do sleep 0.05; i=$((i+1)); done")
	var ports struct {
		Ports []struct {
			Port int
			URL  string `json:"preview_url"`
		}
	}
	viewer.ask("GET", at+"/ports", "", &ports)
	if len(ports.Ports) != 1 || ports.Ports[0].Port != 8123 || !strings.HasPrefix(ports.Ports[0].URL, "http://8123-"+id+".localhost:") {
		t.Fatalf("%+v", ports)
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
		viewer.ask("GET", at+"/processes", "", &list)
		if !slices.ContainsFunc(list.Processes, busy) {
			return fmt.Errorf("no process is busy: %+v", list)
		}
		return nil
	})
	loop := list.Processes[slices.IndexFunc(list.Processes, busy)].PID
	b.ask("DELETE", fmt.Sprintf("%s/processes/%d?signal=KILL", at, loop), "", nil)
	hosttest.EventuallyNoError(t, func() error {
		viewer.ask("GET", at+"/processes", "", &list)
		if slices.ContainsFunc(list.Processes, func(p process) bool { return p.PID == loop }) {
			return fmt.Errorf("%d is not gone: %+v", loop, list)
		}
		return nil
	})
	server := slices.IndexFunc(list.Processes, func(p process) bool { return slices.Contains(p.Args, "http.server") })
	if server < 0 || list.Processes[server].Memory < 1<<20 || list.Processes[server].PPID != 1 {
		t.Errorf("%+v", list)
	}

	_, cell := b.do("POST", at+"/cells", `{"code":"print('from a cell')\n6*7"}`)
	if !strings.Contains(string(cell), `{"type":"stdout","text":"from a cell\n"}`) || !strings.Contains(string(cell), `"text/plain":"42"`) || !strings.Contains(string(cell), `"type":"end"`) {
		t.Errorf("%s", cell)
	}
	var tapes struct{ Recordings []struct{ ID, How string } }
	viewer.ask("GET", "/v1"+at+"/recordings", "", &tapes)
	if len(tapes.Recordings) != 2 || tapes.Recordings[1].How != "cell" {
		t.Fatalf("%+v", tapes)
	}
	if tape := viewer.ask("GET", "/v1"+at+"/recordings/"+tapes.Recordings[1].ID, "", nil); !strings.Contains(string(tape), "from a cell") {
		t.Errorf("%s", tape)
	}
}

// Two people use one terminal. One takes control, types, and loses control; a third only watches.
func TestTerminal(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := servetest.Start(t, program, t.TempDir())
	ann, bob, eve := signIn(t, s, "Ann", "operator"), signIn(t, s, "Bob", "operator"), signIn(t, s, "Eve", "viewer")
	id := ann.make()
	page := eve.follow("topics=record:"+id, "")
	var term struct{ PID int }
	ann.ask("POST", "/sandboxes/"+id+"/terminals", `{"cols":90,"rows":30}`, &term)
	at := fmt.Sprintf("/sandboxes/%s/terminals/%d/attach?cols=120&rows=33", id, term.PID)
	a, b := ann.attach(at), bob.attach(at)
	a.until("ready", `"controller":null`)
	b.until("ready", "")
	a.typeKeys("echo early\r")
	a.until("error", "no_control")
	a.say(`{"type":"take"}`)
	a.until("control", `"mine":true`)
	b.until("control", `"controller":"Ann","mine":false`)
	page.until("entry", `"terminal.control"`, "console:"+ann.id, `"do":"take"`)
	a.typeKeys("echo $((6*7))-$(tput cols 2>/dev/null || stty size | cut -d' ' -f2)\r")
	a.until("", "42-120")
	b.until("", "42-120")
	b.say(`{"type":"take"}`)
	b.until("control", `"mine":true`)
	a.until("control", `"controller":"Bob","mine":false`)
	page.until("entry", `"terminal.control"`, "console:"+bob.id, `"displaced":"console:`+ann.id)
	a.typeKeys("echo displaced\r")
	a.until("error", "no_control")
	e := eve.attach(at)
	e.until("", "42-120") // what was printed before
	e.say(`{"type":"take"}`)
	e.until("error", "scope_too_small")
	b.typeKeys("exit 7\r")
	for _, each := range []*screen{a, b, e} {
		each.until("exit", `"exit_code":7`)
	}
	page.until("entry", `"command.ended"`, `"exit":7`)
	ann.ask("POST", "/sandboxes/"+id+"/terminals", `{"cols":90,"rows":30,"command":["/bin/cat"]}`, &term)
	at = fmt.Sprintf("/sandboxes/%s/terminals/%d/attach", id, term.PID)
	a, b = ann.attach(at), bob.attach(at)
	b.until("ready", "")
	b.say(`{"type":"take"}`)
	a.until("control", `"controller":"Bob"`)
	bob.ask("DELETE", "/session", "", nil)
	b.over() // with the session
	a.until("control", `"controller":null`)
	s.Stop(t)
	a.over() // with the server, which waits for no page
	page.over()
	if strings.Contains(a.seen, "early") || strings.Contains(a.seen, "displaced") {
		t.Errorf("typed without control: %q", a.seen)
	}
}

// A page can watch and use a terminal that an SDK opened. The program continues when the page is
// closed.
func TestTerminalOfAnSDK(t *testing.T) {
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
	b.ask("GET", "/sandboxes/"+sb.ID()+"/terminals", "", &list)
	if len(list.Terminals) != 1 || list.Terminals[0].PID != cmd.PID() || list.Terminals[0].Cols != 70 {
		t.Fatalf("%+v", list)
	}
	page := b.attach(fmt.Sprintf("/sandboxes/%s/terminals/%d/attach", sb.ID(), cmd.PID()))
	page.until("ready", `"cols":70`)
	page.say(`{"type":"take"}`)
	page.until("control", `"mine":true`)
	page.typeKeys("from a page\r")
	page.until("", "from a page\r\nfrom a page")
	for range 2 {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) != "from a page" {
			t.Errorf("the SDK saw %q", lines.Text())
		}
	}
	page.conn.Close(websocket.StatusNormalClosure, "")
	if _, err := io.WriteString(in, "from the SDK\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) != "from the SDK" {
			t.Errorf("the SDK saw %q", lines.Text())
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

// If a server is killed and restarted, the page continues where it was: no entry is lost or
// repeated, and the open terminal still exists.
func TestKilledUnderAPage(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	b := signIn(t, s, "Ann", "operator")
	id := b.make()
	var term struct{ PID int }
	b.ask("POST", "/sandboxes/"+id+"/terminals", `{"cols":80,"rows":24,"command":["/bin/cat"]}`, &term)
	page := b.follow("topics=record", "")
	var seen []int64
	note := func(e event) {
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
			e := <-page.in
			note(e)
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
		e := page.until("entry")
		note(e)
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
	w.until("ready", `"cols":80`)
	w.say(`{"type":"take"}`)
	w.until("control", `"mine":true`)
	w.typeKeys("still here\r")
	w.until("", "still here\r\nstill here")
	b.ask("DELETE", "/v1/sandboxes/"+id, "", nil)
}
