package inside_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/console/inside"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// listing is the response to a list of files.
type listing struct {
	Path    string
	Entries []inside.Entry
}

// TestFileActionsAreRecorded lists, uploads, downloads, moves and removes files. Each action is in
// the audit log with its actor.
func TestFileActionsAreRecorded(t *testing.T) {
	s := newStack(t)
	at := func(name string) string { return "?path=" + url.QueryEscape(filepath.Join(s.home, name)) }
	content := "<script>alert(1)</script>\x00\xff"
	s.request("alice/operator", "PUT", "/file"+at("evil.html"), content, nil)
	s.request("alice/operator", "PUT", "/file"+at("empty"), "", nil)
	s.request("alice/operator", "POST", "/dirs", fmt.Sprintf(`{"path":%q}`, s.home+"/d"), nil)
	s.request("alice/operator", "POST", "/move", fmt.Sprintf(`{"from":%q,"to":%q}`, s.home+"/empty", s.home+"/d/full"), nil)
	if err := os.Symlink("/etc/passwd", filepath.Join(s.home, "link")); err != nil {
		t.Fatal(err)
	}
	var l listing
	s.request("bob/viewer", "GET", "/files"+at(""), "", &l)
	types := map[string]string{}
	for _, e := range l.Entries {
		types[e.Name] = e.Type
		if e.Path != filepath.Join(s.home, e.Name) {
			t.Errorf("entry of the listing: got %+v", e)
		}
	}
	if l.Path != s.home || types["evil.html"] != "file" || types["d"] != "dir" || types["link"] != "symlink" || len(types) != 3 {
		t.Errorf("listing of the home directory: got %+v", l)
	}
	s.request("bob/viewer", "GET", "/files", "", &l)
	if l.Path != s.home {
		t.Errorf("list without a path: got %q, want the home directory", l.Path)
	}
	res, text := s.do("alice/operator", "GET", "/file"+at("evil.html"), "")
	if text != content {
		t.Errorf("downloaded %q, want %q", text, content)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment; filename=evil.html",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	s.request("alice/operator", "DELETE", "/file"+at("d"), "", nil)
	if _, err := os.Stat(filepath.Join(s.home, "d")); err == nil {
		t.Error("the removed directory d still exists")
	}
	for path, code := range map[string]string{
		"/file" + at("none"): "file_not_found", "/file?path=relative": "invalid_path", "/file?path=%2Fa%00b": "invalid_path",
		"/file?path=%2Fa%FF": "invalid_path", "/file": "invalid_path", "/nothing": "route_not_found",
	} {
		if _, text := s.do("alice/operator", "GET", path, ""); !strings.Contains(text, `"`+code+`"`) {
			t.Errorf("%s: %s", path, text)
		}
	}
	var recorded []string
	for _, e := range s.entries(audit.Action) {
		if e.Actor != "console:alice" {
			continue
		}
		var d struct{ Do, Outcome string }
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, d.Do+" "+d.Outcome)
	}
	want := []string{"file.upload ok", "file.upload ok", "file.mkdir ok", "file.move ok", "file.download ok", "file.remove ok"}
	if !slices.Equal(recorded, want) {
		t.Errorf("got audit entries %q, want %q", recorded, want)
	}
}

// TestLongPathIsSentInFull checks a long path. The page uses it for actions on the file, so it must
// not be shortened.
func TestLongPathIsSentInFull(t *testing.T) {
	s := newStack(t)
	dir := filepath.Join(s.home, strings.Repeat(strings.Repeat("d", 200)+"/", 8))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var l listing
	s.request("bob/viewer", "GET", "/files?path="+url.QueryEscape(dir), "", &l)
	if l.Path != dir || len(l.Entries) != 1 || l.Entries[0].Path != filepath.Join(dir, "a") {
		t.Errorf("GET /files: got %+v", l)
	}
}

// TestHostileFileNamesAreData checks that names with markup and control characters are escaped.
func TestHostileFileNamesAreData(t *testing.T) {
	s := newStack(t)
	for _, name := range []string{"a\nb", "<img src=x onerror=alert(1)>", "\x1b[2J", "\u202etxt.exe", "bad\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(s.home, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	res, text := s.do("bob/viewer", "GET", "/files?path="+url.QueryEscape(s.home), "")
	var l listing
	if err := json.Unmarshal([]byte(text), &l); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET /files: got %s %v", text, err)
	}
	if strings.Contains(text, "<img") || strings.ContainsAny(text, "\x1b") || len(l.Entries) != 5 {
		t.Errorf("%d: %q", len(l.Entries), text)
	}
}

// TestActionsNeedScope checks that a viewer can read but not change anything, and that a caller
// without a scope can do neither. Nothing is shown of a sandbox that is not running.
func TestActionsNeedScope(t *testing.T) {
	s := newStack(t)
	for _, route := range []string{
		"PUT /file?path=/x", "GET /file?path=/x", "DELETE /file?path=/x", "POST /dirs", "POST /move", "POST /cells", "POST /terminals", "DELETE /processes/5",
	} {
		method, path, _ := strings.Cut(route, " ")
		if res, text := s.do("bob/viewer", method, path, "{}"); res.StatusCode != http.StatusForbidden || !strings.Contains(text, "scope_too_small") {
			t.Errorf("%s as viewer: %s %s", route, res.Status, text)
		}
	}
	for _, route := range []string{"/processes", "/files", "/ports", "/terminals"} {
		if res, text := s.do("bob/viewer", "GET", route, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s as viewer: %s %s", route, res.Status, text)
		}
		for _, caller := range []string{"", "/admin", "mallory/", "mallory/root"} {
			if res, _ := s.do(caller, "GET", route, ""); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s as %q: %s", route, caller, res.Status)
			}
		}
	}
	local := sandbox.Principal{Local: true}
	if err := s.daemon.Service.Remove(t.Context(), local, s.sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, text := s.do("bob/viewer", "GET", "/files", ""); !strings.Contains(text, "sandbox_not_running") {
		t.Errorf("files of an ended sandbox: got %s, want sandbox_not_running", text)
	}
}

// TestProcessListAndSignals lists processes with their CPU rate, and ends one. The signal is in the
// audit log.
func TestProcessListAndSignals(t *testing.T) {
	s := newStack(t)
	child := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done", "x\x1b]0;evil\x07")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	find := func() (p inside.Process) {
		t.Helper()
		var list struct{ Processes []inside.Process }
		s.request("bob/viewer", "GET", "/processes", "", &list)
		i := slices.IndexFunc(list.Processes, func(p inside.Process) bool { return p.PID == child.Process.Pid })
		if i < 0 {
			t.Fatal("the child is not in the list")
		}
		return list.Processes[i]
	}
	if p := find(); p.CPU != nil || p.Parent != os.Getpid() || len(p.Args) != 4 || p.Memory == 0 {
		t.Errorf("the process: got %+v", p)
	}
	hosttest.EventuallyNoError(t, func() error {
		p := find()
		// At first too little time has passed since the first measurement; and on a busy machine a
		// single rate is imprecise.
		if p.CPU == nil || *p.CPU <= 0.01 || *p.CPU > 1.5 {
			return fmt.Errorf("a busy loop is %+v", p)
		}
		return nil
	})
	path := fmt.Sprintf("/processes/%d", child.Process.Pid)
	for _, bad := range []string{path + "?signal=NONE", path + "?signal=9", "/processes/x", "/processes/1?signal=KILL", "/processes/-1"} {
		if res, text := s.do("alice/operator", "DELETE", bad, ""); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", bad, res.Status, text)
		}
	}
	s.request("alice/operator", "DELETE", path+"?signal=KILL", "", nil)
	if err := child.Wait(); err == nil || child.ProcessState.String() != "signal: killed" {
		t.Errorf("the process ended with %v, want killed", err)
	}
	if res, _ := s.do("alice/operator", "DELETE", path, ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("signal to an ended process: got %s, want 404", res.Status)
	}
	found := false
	for _, e := range s.entries(audit.Action) {
		found = found || e.Actor == "console:alice" && strings.Contains(string(e.Data), `"process.signal","outcome":"ok"`)
	}
	if !found {
		t.Error("the audit log has no entry of the signal")
	}
}

// TestListeningPortsHavePreviewURLs checks that a port on which a program listens is shown with an
// address of another origin.
func TestListeningPortsHavePreviewURLs(t *testing.T) {
	s := newStack(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	var list struct{ Ports []inside.Port }
	s.request("bob/viewer", "GET", "/ports", "", &list)
	_, own, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	want := inside.Port{Port: port, PreviewURL: fmt.Sprintf("http://%d-%s.sandboxes.test:%s/", port, s.sb.ID, own)}
	if !slices.Contains(list.Ports, want) {
		t.Errorf("%+v is not among %+v", want, list.Ports)
	}
	// A page that was loaded over a proxy with TLS shows no preview without TLS.
	s.header = http.Header{"X-Forwarded-Proto": {"https"}}
	s.request("bob/viewer", "GET", "/ports", "", &list)
	want.PreviewURL = strings.Replace(want.PreviewURL, "http:", "https:", 1)
	if !slices.Contains(list.Ports, want) {
		t.Errorf("behind a proxy %+v is not among %+v", want, list.Ports)
	}
}

// TestCellOutputAndAuditEntry checks that the output of a cell is sent as lines of JSON, which end
// with its duration. The code is in the audit log.
func TestCellOutputAndAuditEntry(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("the test needs python3")
	}
	s := newStack(t)
	res, text := s.do("alice/operator", "POST", "/cells", `{"code":"print('a\\nb')\n1+1","language":"python"}`)
	if res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("POST /cells: got %s %s", res.Status, text)
	}
	var types []string
	var result, end map[string]any
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		types = append(types, m["type"].(string))
		switch m["type"] {
		case "result":
			result = m
		case "end":
			end = m
		}
	}
	if !slices.Contains(types, "stdout") || result == nil || result["main"] != true || result["data"].(map[string]any)["text/plain"] != "2" {
		t.Errorf("output of the cell: got %s", text)
	}
	if end == nil || end["execution_count"] != 1.0 || types[len(types)-1] != "end" {
		t.Errorf("end of the cell: got %s", text)
	}
	if _, text = s.do("alice/operator", "POST", "/cells", `{"code":"1/0"}`); !strings.Contains(text, `"name":"ZeroDivisionError"`) {
		t.Errorf("POST /cells: got %s", text)
	}
	if _, text = s.do("alice/operator", "POST", "/cells", `{"code":1}`); !strings.Contains(text, "invalid_json") {
		t.Errorf("POST /cells: got %s", text)
	}
	found := false
	for _, e := range s.entries(audit.CommandStarted) {
		found = found || e.Actor == "console:alice" && bytes.Contains(e.Data, []byte("1+1"))
	}
	if !found {
		t.Errorf("the audit log has no entry of the cell: %+v", s.entries(audit.CommandStarted))
	}
}
