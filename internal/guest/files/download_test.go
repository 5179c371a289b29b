package files_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/files"
)

// download requests a path with the token.
func download(t *testing.T, home, method, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "/files", nil)
	r.URL.RawQuery = "path=" + path
	maps.Copy(r.Header, header)
	r.Header.Set(files.TokenHeader, token)
	w := httptest.NewRecorder()
	service(home).Download(w, r)
	return w.Result()
}

// content returns the body of an answer.
func content(t *testing.T, res *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// write creates a file and its directory.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDownloadContentAndRange(t *testing.T) {
	home := t.TempDir()
	const text = "0123456789"
	write(t, filepath.Join(home, "f.txt"), text)
	for name, c := range map[string]struct {
		method string
		header http.Header
		status int
		want   string
	}{
		"complete":         {http.MethodGet, nil, 200, text},
		"head":             {http.MethodHead, nil, 200, ""},
		"a range":          {http.MethodGet, http.Header{"Range": {"bytes=2-4"}}, 206, "234"},
		"beyond end":       {http.MethodGet, http.Header{"Range": {"bytes=20-"}}, 416, "invalid range: failed to overlap\n"},
		"no range in gzip": {http.MethodGet, http.Header{"Range": {"bytes=2-4"}, "Accept-Encoding": {"gzip"}}, 206, "234"},
	} {
		res := download(t, home, c.method, "f.txt", c.header)
		if got := content(t, res); res.StatusCode != c.status || got != c.want || res.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: got %d %q, want %d %q", name, res.StatusCode, got, c.status, c.want)
		}
	}
	res := download(t, home, http.MethodHead, "f.txt", nil)
	if res.ContentLength != int64(len(text)) || res.Header.Get("Content-Disposition") != `inline; filename=f.txt` {
		t.Errorf("HEAD: got %d bytes, %v", res.ContentLength, res.Header)
	}
}

// A browser must not run content from a sandbox with the rights of this origin.
func TestDownloadCannotRunAsPage(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "x.html"), "<script>alert(1)</script>")
	for name, method := range map[string]string{"get": http.MethodGet, "head": http.MethodHead} {
		h := download(t, home, method, "x.html", nil).Header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") != "sandbox" || h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("headers of %s: got %v, want nosniff and a sandbox policy", name, h)
		}
	}
}

func TestDownloadCompressed(t *testing.T) {
	home := t.TempDir()
	text := strings.Repeat("same ", 10_000)
	write(t, filepath.Join(home, "f"), text)
	gzipOnly := http.Header{"Accept-Encoding": {"gzip"}}
	res := download(t, home, http.MethodGet, "f", gzipOnly)
	packed := content(t, res)
	plain, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(plain); err != nil || string(got) != text || len(packed) > len(text)/10 || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("gzip: got %d compressed bytes, %v, %v", len(packed), res.Header, err)
	}
	head := download(t, home, http.MethodHead, "f", gzipOnly)
	if got := content(t, head); got != "" || head.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("HEAD with gzip: got %q, %v, want no body", got, head.Header)
	}
	rejected := download(t, home, http.MethodGet, "f", http.Header{"Accept-Encoding": {"identity;q=0"}})
	if got := content(t, rejected); rejected.StatusCode != http.StatusNotAcceptable || !strings.Contains(got, "no acceptable encoding") {
		t.Errorf("no acceptable encoding: got %d %s, want 406", rejected.StatusCode, got)
	}
}

// Files of /proc have content although their size is 0. Its length is known only at the end.
func TestDownloadOfUnknownSize(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "empty"), "")
	res := download(t, home, http.MethodGet, "empty", nil)
	if got := content(t, res); res.StatusCode != 200 || got != "" || res.Header.Get("Content-Length") != "0" {
		t.Errorf("empty file: got %d %q %v, want 200 and length 0", res.StatusCode, got, res.Header)
	}
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	res = download(t, home, http.MethodGet, "/proc/version", nil)
	if got := content(t, res); got != string(want) || res.Header.Get("Content-Length") != strconv.Itoa(len(want)) || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("/proc/version: got %q, %v, want its content and length", got, res.Header)
	}
	head := download(t, home, http.MethodHead, "/proc/version", nil)
	if got := content(t, head); got != "" || head.Header.Get("Content-Length") != strconv.Itoa(len(want)) {
		t.Errorf("head of /proc/version: %q %v", got, head.Header)
	}
	// This file is larger than the first read, so the answer has no length.
	all, err := os.ReadFile("/proc/kallsyms")
	if err != nil || len(all) < 100<<10 {
		t.Fatalf("/proc/kallsyms has %d bytes: %v", len(all), err)
	}
	res = download(t, home, http.MethodGet, "/proc/kallsyms", nil)
	if got := content(t, res); len(got) != len(all) || got[:1000] != string(all[:1000]) || res.Header.Get("Content-Length") != "" {
		t.Errorf("/proc/kallsyms: %d bytes of %d, %v", len(got), len(all), res.Header)
	}
}

func TestDownloadErrorStatus(t *testing.T) {
	home := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(home, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, "f"), "x")
	if err := os.Symlink("loop", filepath.Join(home, "loop")); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"none":                    {404, "/none' does not exist"},
		".":                       {400, "is a directory"},
		"pipe":                    {400, "is not a regular file"},
		"/dev/null":               {400, "is not a regular file"},
		"f/below":                 {400, "not a directory"},
		"loop":                    {400, "too many levels of symbolic links"},
		strings.Repeat("x", 300):  {400, "file name too long"},
		strings.Repeat("x", 5000): {400, "path is longer than 4096 bytes"},
		"a%00b":                   {400, "path contains a NUL byte"},
		"f&username=mallory":      {401, "invalid username: 'mallory'"},
		"f;g":                     {400, "malformed query"},
		"/proc/self/mem":          {500, "internal error"},
	} {
		res := download(t, home, http.MethodGet, query, nil)
		if got := content(t, res); res.StatusCode != want.status || !strings.Contains(got, want.text) {
			t.Errorf("download with %.40s: got %d %.300s, want %d %s", query, res.StatusCode, got, want.status, want.text)
		}
	}
}

// A request without the token or with a wrong token is rejected.
func TestDownloadNeedsToken(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "f"), "secret")
	for given, want := range map[string]string{
		"": "missing signature query parameter", "wrong": "access token present in header but does not match", "tokenx": "does not match",
	} {
		r := httptest.NewRequest(http.MethodGet, "/files?path=f", nil)
		if given != "" {
			r.Header.Set(files.TokenHeader, given)
		}
		w := httptest.NewRecorder()
		service(home).Download(w, r)
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), want) || bytes.Contains(w.Body.Bytes(), []byte("secret")) {
			t.Errorf("download with the token %q: got %d %s, want 401", given, w.Code, w.Body)
		}
	}
}
