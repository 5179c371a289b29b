package guest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/signature"
)

const octets = "application/octet-stream"

func (b *testGuest) upload(t testing.TB, query, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	headers = append([]string{"X-Access-Token", access, "Content-Type", octets}, headers...)
	return b.call(t, "POST", "/files?"+query, strings.NewReader(body), headers...)
}

func (b *testGuest) download(t testing.TB, query string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return b.call(t, "GET", "/files?"+query, nil, append([]string{"X-Access-Token", access}, headers...)...)
}

func (b *testGuest) read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.home, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestUploadAndDownload(t *testing.T) {
	b := newTestGuest(t, nil)
	w := b.upload(t, "path=a/b/hello.txt", "hello")
	want := fmt.Sprintf(`[{"path":"%s/a/b/hello.txt","name":"hello.txt","type":"file"}]`+"\n", b.home)
	if w.Code != 200 || w.Body.String() != want {
		t.Fatalf("upload: %d %s, want %s", w.Code, w.Body, want)
	}
	info, err := os.Stat(filepath.Join(b.home, "a/b/hello.txt"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode of the uploaded file: got %v, %v, want 0644", info.Mode(), err)
	}
	w = b.download(t, "path=a/b/hello.txt", "Accept-Encoding", "gzip, deflate")
	if w.Code != 200 || w.Body.String() != "hello" || w.Header().Get("Content-Disposition") != "inline; filename=hello.txt" || w.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("download: got %d %q %v, want 200 hello", w.Code, w.Body, w.Header())
	}
	// A shorter upload leaves nothing of the longer content.
	b.upload(t, "path=a/b/hello.txt", "hi")
	if got := b.read(t, "a/b/hello.txt"); got != "hi" {
		t.Errorf("after a second upload: %q", got)
	}
}

func TestDownloadErrors(t *testing.T) {
	b := newTestGuest(t, nil)
	pipe := filepath.Join(b.home, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"path=/nope":              `{"code":404,"message":"path '/nope' does not exist"}`,
		"path=" + b.home:          `{"code":400,"message":"path '` + b.home + `' is a directory"}`,
		"path=/dev/zero":          `{"code":400,"message":"path '/dev/zero' is not a regular file"}`,
		"path=pipe":               `{"code":400,"message":"path '` + pipe + `' is not a regular file"}`,
		"path=a%00b":              `{"code":400,"message":"path contains a NUL byte"}`,
		"path=a&username=mallory": `{"code":401,"message":"invalid username: 'mallory'"}`,
		"path=" + url.QueryEscape(strings.Repeat("a/", 3000)): `{"code":400,"message":"path is longer than 4096 bytes"}`,
	} {
		if w := b.download(t, query); strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("download of %.60s: got %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	w := b.download(t, "path=/etc/passwd", "Accept-Encoding", "identity;q=0, br")
	if w.Code != 406 {
		t.Errorf("unacceptable encoding: got status %d, want 406", w.Code)
	}
}

func TestDownloadRangeGzipAndProc(t *testing.T) {
	b := newTestGuest(t, nil)
	b.upload(t, "path=f", "0123456789")
	if w := b.download(t, "path=f", "Range", "bytes=2-4"); w.Code != 206 || w.Body.String() != "234" {
		t.Errorf("range: got %d %q, want 206 and 234", w.Code, w.Body)
	}
	w := b.download(t, "path=f", "Accept-Encoding", "gzip")
	plain, err := gzip.NewReader(w.Body)
	if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers of a gzip download: got %v, %v, want Content-Encoding gzip", w.Header(), err)
	}
	if got, err := io.ReadAll(plain); err != nil || string(got) != "0123456789" {
		t.Errorf("gzip content: got %q, %v, want 0123456789", got, err)
	}
	b.upload(t, "path=empty", "")
	w = b.download(t, "path=empty")
	if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "0" {
		t.Errorf("empty file: got %d %v, want 200 and length 0", w.Code, w.Header())
	}
	// Files of /proc report the size 0.
	if w := b.download(t, "path=/proc/self/status"); !strings.Contains(w.Body.String(), "Name:") {
		t.Errorf("file of /proc: got %d %q, want its content", w.Code, w.Body)
	}
}

func TestUploadMultipart(t *testing.T) {
	b := newTestGuest(t, nil)
	part := func(name, filename, content string) string {
		return "--B\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + filename + "\"\r\n\r\n" + content + "\r\n"
	}
	form := func(query string, parts ...string) *httptest.ResponseRecorder {
		return b.upload(t, query, strings.Join(parts, "")+"--B--\r\n", "Content-Type", "multipart/form-data; boundary=B")
	}
	w := form("", part("file", "deep/er/one", "1"), part("other", "ignored", "x"), part("file", b.home+"/two", "22"))
	want := fmt.Sprintf(`[{"path":"%[1]s/deep/er/one","name":"one","type":"file"},{"path":"%[1]s/two","name":"two","type":"file"}]`+"\n", b.home)
	if w.Code != 200 || w.Body.String() != want {
		t.Fatalf("upload of two files: got %d %s, want 200 %s", w.Code, w.Body, want)
	}
	if b.read(t, "deep/er/one") != "1" || b.read(t, "two") != "22" {
		t.Error("the uploaded files have wrong content")
	}
	if _, err := os.Stat(filepath.Join(b.home, "ignored")); err == nil {
		t.Error("a part with another name was written")
	}
	if w := form("path=three", part("file", "whatever", "3")); w.Code != 200 || b.read(t, "three") != "3" {
		t.Errorf("path in the query: %d %s", w.Code, w.Body)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"same path twice":      form("", part("file", "x", "1"), part("file", "./x", "2")),
		"one path, two parts":  form("path=y", part("file", "1", "1"), part("file", "2", "2")),
		"no file":              form("", part("other", "x", "1")),
		"no file name":         form("", "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n"),
		"cut short":            b.upload(t, "", part("file", "cut", "1")[:60], "Content-Type", "multipart/form-data; boundary=B"),
		"no boundary":          b.upload(t, "path=z", "x", "Content-Type", "multipart/form-data"),
		"octets without path":  b.upload(t, "", "x"),
		"unknown content type": b.upload(t, "path=z", "x", "Content-Type", "text/plain"),
		"not gzip":             b.upload(t, "path=z", "x", "Content-Encoding", "gzip"),
		"unknown encoding":     b.upload(t, "path=z", "x", "Content-Encoding", "br"),
		"onto a directory":     b.upload(t, "path=deep", "x"),
		"below a file":         b.upload(t, "path=two/x", "x"),
		"onto a device":        b.upload(t, "path=/dev/null", "x"),
	} {
		if w.Code != 400 {
			t.Errorf("upload, %s: got %d %s, want 400", name, w.Code, w.Body)
		}
	}
}

func TestUploadGzip(t *testing.T) {
	b := newTestGuest(t, nil)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("packed")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if w := b.upload(t, "path=f", packed.String(), "Content-Encoding", "gzip"); w.Code != 200 || b.read(t, "f") != "packed" {
		t.Errorf("gzip upload: got %d %s", w.Code, w.Body)
	}
	if w := b.upload(t, "path=g", packed.String()[:packed.Len()-6], "Content-Encoding", "gzip"); w.Code != 400 {
		t.Errorf("truncated gzip upload: got %d %s, want 400", w.Code, w.Body)
	}
}

func TestSignedURL(t *testing.T) {
	b := newTestGuest(t, nil)
	b.upload(t, "path=hello.txt", "hello")
	now := time.Now().Unix()
	expiring := signature.Sign("hello.txt", signature.Read, "", access, now+100)
	stripped := "path=hello.txt&signature=" + url.QueryEscape(expiring)
	sign := func(op signature.Op, expires int64) string {
		q := url.Values{"path": {"hello.txt"}, "username": {"user"}, "signature": {signature.Sign("hello.txt", op, "user", access, expires)}}
		if expires != 0 {
			q.Set("signature_expiration", fmt.Sprint(expires))
		}
		return q.Encode()
	}
	for _, c := range []struct{ name, method, query, header, body string }{
		{"no signature", "GET", "path=hello.txt", "", `{"code":401,"message":"missing signature query parameter"}`},
		{"wrong", "GET", "path=hello.txt&username=user&signature=v1_x", "", `{"code":401,"message":"invalid signature"}`},
		{"another path", "GET", strings.Replace(sign(signature.Read, 0), "hello.txt", "other.txt", 1), "", `{"code":401,"message":"invalid signature"}`},
		{"another user", "GET", strings.Replace(sign(signature.Read, 0), "username=user", "username=root", 1), "", `{"code":401,"message":"invalid signature"}`},
		{"another operation", "POST", sign(signature.Read, 0), "", `{"code":401,"message":"invalid signature"}`},
		{"expired", "GET", sign(signature.Read, now-1), "", `{"code":401,"message":"signature is already expired"}`},
		{"expiration removed", "GET", stripped, "", `{"code":401,"message":"invalid signature"}`},
		{"wrong token", "GET", sign(signature.Read, 0), "nope", `{"code":401,"message":"access token present in header but does not match"}`},
		{"valid", "GET", sign(signature.Read, 0), "", "hello"},
		{"valid with expiration", "GET", sign(signature.Read, now+100), "", "hello"},
	} {
		headers := []string{"Content-Type", octets}
		if c.header != "" {
			headers = append(headers, "X-Access-Token", c.header)
		}
		w := b.call(t, c.method, "/files?"+c.query, nil, headers...)
		if strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s: got %d %s, want %s", c.name, w.Code, w.Body, c.body)
		}
	}
	if w := b.call(t, "POST", "/files?"+sign(signature.Write, 0), strings.NewReader("new"), "Content-Type", octets); w.Code != 200 || b.read(t, "hello.txt") != "new" {
		t.Errorf("signed upload: got %d %s, want 200", w.Code, w.Body)
	}
}

func TestUploadMetadata(t *testing.T) {
	b := newTestGuest(t, nil)
	w := b.upload(t, "path=f", "x", "X-Metadata-Author", "me", "X-Metadata-Kind", "a b")
	want := fmt.Sprintf(`[{"path":"%s/f","name":"f","type":"file","metadata":{"author":"me","kind":"a b"}}]`+"\n", b.home)
	if w.Code != 200 || w.Body.String() != want {
		t.Fatalf("upload with metadata: got %d %s, want %s", w.Code, w.Body, want)
	}
	buf := make([]byte, 100)
	n, err := unix.Getxattr(filepath.Join(b.home, "f"), "user.e2b.author", buf)
	if err != nil || string(buf[:n]) != "me" {
		t.Errorf("attribute of the uploaded file: got %q, %v, want me", buf[:max(n, 0)], err)
	}
	b.upload(t, "path=f", "x", "X-Metadata-Other", "1")
	if _, err := unix.Getxattr(filepath.Join(b.home, "f"), "user.e2b.author", buf); err == nil {
		t.Error("the attribute of the first upload is still there")
	}
	if w := b.upload(t, "path=f", "x", "X-Metadata-K", "schön"); w.Code != 400 {
		t.Errorf("metadata that is not ASCII: got status %d, want 400", w.Code)
	}
	if w := b.upload(t, "path=f", "x", "X-Metadata-K", strings.Repeat("x", 5000)); w.Code != 400 {
		t.Errorf("metadata that is too long: got status %d, want 400", w.Code)
	}
}

func TestCompose(t *testing.T) {
	b := newTestGuest(t, nil)
	b.upload(t, "path=1", "one ")
	b.upload(t, "path=2", "two")
	compose := func(body string) *httptest.ResponseRecorder {
		return b.call(t, "POST", "/files/compose", strings.NewReader(body), "X-Access-Token", access)
	}
	w := compose(`{"source_paths":["1","2"],"destination":"sub/all"}`)
	if w.Code != 200 || b.read(t, "sub/all") != "one two" {
		t.Fatalf("compose: got %d %s", w.Code, w.Body)
	}
	if _, err := os.Stat(filepath.Join(b.home, "1")); err == nil {
		t.Error("a source file is still there after compose")
	}
	for body, want := range map[string]int{
		`{"source_paths":["nope"],"destination":"x"}`:          404,
		`{"source_paths":[],"destination":"x"}`:                400,
		`{"source_paths":["sub/all"],"destination":"sub/all"}`: 400,
		`{"source_paths":["a","a"],"destination":"x"}`:         400,
		`nonsense`: 400,
		`{"source_paths":["a"],"destination":"x","username":"m"}`: 401,
	} {
		if w := compose(body); w.Code != want {
			t.Errorf("compose %s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
	if b.read(t, "sub/all") != "one two" {
		t.Error("a rejected request changed the destination")
	}
}
