package abuse_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog"
)

var requestAttacks = []attack{
	{name: "malformed requests", run: malformedRequests},
	{name: "hostile names", run: hostileNames},
	{name: "path traversal", run: pathTraversal},
}

// malformedRequests sends requests that no client should send, to the APIs and to the guest. The
// server must answer with a client error; a 500 would be an internal error.
func malformedRequests(t *testing.T, b *testSandbox) {
	control := fmt.Sprintf("HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\n", b.environment.Key)
	body := func(text string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }
	var requests []string
	for _, text := range []string{
		"", "{", "null", "[]", `"x"`, "{}{}", "\x00", "\xff\xfe", `{"a":` + strings.Repeat("[", 20_000), `{"timeout_seconds":1e999}`,
		`{"timeout":-1,"templateID":"base"}`, `{"templateID":{}}`, `{"templateID":"../../etc"}`, `{"cmd":null}`, `{"cmd":[]}`,
		`{"limits":{"memory_bytes":-1}}`, `{"metadata":{"x":1}}`, `{"name":"../x"}`, `{"seconds":"NaN"}`, strings.Repeat("x", 2<<20),
	} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes", "/v1/sandboxes/" + b.ID() + "/exec", "/v1/sandboxes/" + b.ID() + "/timeout", "/sandboxes/" + b.ID() + "/timeout"} {
			if strings.HasSuffix(path, "/timeout") && (text == "null" || strings.Contains(text, "templateID")) {
				continue // missing fields are valid, and a timeout of zero would end the sandbox
			}
			requests = append(requests, "POST "+path+" "+control+body(text))
		}
	}
	for _, text := range []string{"", "{", "[]", "\x00\x00\x00\x00\x05{", "\x00\xff\xff\xff\xff", "\x01\x00\x00\x00\x02\x1f\x8b", strings.Repeat("\x80", 1000)} {
		for _, kind := range []string{"application/json", "application/proto", "application/connect+json", "application/connect+proto", "application/grpc", "text/plain"} {
			for _, path := range []string{"/process.Process/Start", "/process.Process/SendInput", "/filesystem.Filesystem/ListDir", "/filesystem.Filesystem/Move"} {
				requests = append(requests, b.guestRequest("POST", path)+"Content-Type: "+kind+"\r\n"+body(text))
			}
		}
	}
	for _, kind := range []string{"multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x", "application/octet-stream; x", "", "image/png"} {
		for _, text := range []string{"", "--x", "--x\r\n\r\n", "--x\r\nContent-Disposition: form-data; name=file\r\n\r\nno end", "--x\r\n" + strings.Repeat("A: b\r\n", 20_000)} {
			requests = append(requests, b.guestRequest("POST", "/files")+"Content-Type: "+kind+"\r\n"+body(text))
		}
	}
	for _, head := range []string{
		"GET http:_crannog/ready", "GET x:http://x/_crannog/ready", "GET x:y", "OPTIONS *", "GET /%zz", "GET /files?%zz",
	} {
		_, rest, _ := strings.Cut(b.guestRequest("GET", "/"), " / ")
		requests = append(requests, head+" "+rest+"\r\n")
	}
	for _, text := range requests {
		resp, answer := b.environment.exchange(t, text)
		// A stream reports its error in the answer's body.
		inBody := resp.StatusCode == http.StatusOK && (strings.Contains(answer, `"error"`) || strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc"))
		empty := strings.Contains(text, "application/proto\r\nContent-Length: 0") || strings.Contains(text, "/ListDir") // a missing path means the home directory
		if (resp.StatusCode < 400 || resp.StatusCode >= 500) && !inBody && !empty && !strings.HasPrefix(text, "OPTIONS") {
			t.Errorf("%.300q\n%s %.300q", text, resp.Status, answer)
		}
	}
	requireAnswer(t, b.Sandbox)
}

// hostileNames uses unusual file names that Linux accepts, and some that it does not.
func hostileNames(t *testing.T, b *testSandbox) {
	files := b.FS().WithContext(t.Context())
	names := []string{
		"-rf", ".hidden", "...", "two\nlines", "\x1b]0;title\x07", "sp ace", `back\slash`, `"quoted"`, "$(id)", "%2e%2e%2f",
		"?query#fragment", "ümläut", strings.Repeat("x", 255), "a:b", "'",
	}
	for _, name := range names {
		path := "tmp/names/" + name
		if err := files.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Errorf("write a file named %q: %v", name, err)
			continue
		}
		if data, err := files.ReadFile(path); err != nil || string(data) != name {
			t.Errorf("read the file named %q: got %q, %v, want its name", name, data, err)
		}
	}
	entries, err := files.ReadDir("tmp/names")
	if err != nil || len(entries) != len(names) {
		t.Errorf("got %d entries, %v, want %d", len(entries), err, len(names))
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			t.Errorf("an unknown name is listed: %q", e.Name())
		}
		if err := files.Remove("tmp/names/" + e.Name()); err != nil {
			t.Errorf("remove the file named %q: %v", e.Name(), err)
		}
	}
	// A name that is not valid UTF-8 is listed, so that the user can see the file.
	b.sh(t, `printf x > "$(printf '/tmp/names/\377\376')"`)
	if entries, err := files.ReadDir("tmp/names"); err != nil || len(entries) != 1 {
		t.Errorf("list a name that is not valid UTF-8: got %v, %v, want 1 entry", entries, err)
	}
	for _, rejected := range []string{"/tmp/%00", "/tmp/a%00b", "/tmp/" + strings.Repeat("x", 256), "/tmp/" + strings.Repeat("x/", 3000)} {
		resp, body := b.environment.exchange(t, b.guestRequest("POST", "/files?path="+rejected)+"Content-Type: application/octet-stream\r\nContent-Length: 1\r\n\r\nx")
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("upload to %.50q: got %s, %.200q, want 400", rejected, resp.Status, body)
		}
	}
}

// traversals lead to the root for readers that decode, clean or cut paths.
var traversals = []string{
	"../../../../../../..", "..%2f..%2f..%2f..%2f..%2f..", "%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e", "..%252f..%252f..%252f..", `..\..\..\..`,
	"....//....//....//....", "./../.././../../..", "..;/..;/..;/..", "%c0%ae%c0%ae/%c0%ae%c0%ae", "/proc/1/root", "/proc/self/root/..",
}

// pathTraversal requests a file of the host in every field that takes a path or an ID. It sends raw
// requests, because clients clean the paths that they send.
func pathTraversal(t *testing.T, b *testSandbox) {
	const secret = "a file of the host"
	file := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(file, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	control := fmt.Sprintf("HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", b.environment.Key)
	for _, traversal := range traversals {
		to := traversal + file
		for _, text := range []string{
			b.guestRequest("GET", "/files?path="+to) + "\r\n", b.guestRequest("GET", "/files/"+to) + "\r\n",
			"GET /sandboxes/" + to + " " + control, "GET /v1/sandboxes/" + to + " " + control, "GET /v2/sandboxes/" + to + "/logs " + control,
			"DELETE /sandboxes/" + to + " " + control, "GET /" + to + " " + control, "GET /templates/" + to + " " + control,
			strings.Replace(b.guestRequest("GET", "/files?path=/etc/hostname"), b.ID(), to, 1) + "\r\n",
		} {
			resp, body := b.environment.exchange(t, text)
			if strings.Contains(body, secret) {
				t.Errorf("%q reads the host's file", text)
			}
			if resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented {
				t.Errorf("%q: got %s, %.200q, want no internal error", text, resp.Status, body)
			}
		}
	}
	// Control: the same path works inside, so the sandbox's boundary protects the host's file.
	files := b.FS().WithContext(t.Context())
	if err := files.WriteFile("tmp/canary", []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, body := b.environment.exchange(t, b.guestRequest("GET", "/files?path="+traversals[0]+"/tmp/canary")+"\r\n"); body != "inside" {
		t.Errorf("control: %q", body)
	}
	if _, err := b.environment.client.Get(t.Context(), traversals[0]+file); err == nil || crannog.Code(err) == "" {
		t.Errorf("a path as the ID of a sandbox: got %v, want an error of the API", err)
	}
}
