package fetch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDownloadKeepsTimeAndRefusesLargeFiles(t *testing.T) {
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dated":
			w.Header().Set("Last-Modified", at.Format(http.TimeFormat))
			_, _ = io.WriteString(w, "12345")
		case "/plain", "/packed":
			if r.URL.Path == "/packed" {
				w.Header().Set("Content-Encoding", "gzip")
			}
			_, _ = io.WriteString(w, "12345")
		case "/stream":
			for range 10 {
				_, _ = io.WriteString(w, "12345")
				w.(http.Flusher).Flush()
			}
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/dated", http.StatusMovedPermanently)
		default:
			http.Error(w, "\x1b[2Jnot here", http.StatusNotFound)
		}
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "f")
	for path, want := range map[string]struct {
		limit int
		at    time.Time
		err   string
	}{
		"/dated": {limit: 5, at: at}, "/moved": {limit: 5, at: at}, "/plain": {limit: 5, at: time.Unix(0, 0)}, "/packed": {limit: 5, at: time.Unix(0, 0)},
		"/plain?": {limit: 4, err: "the file has 5 bytes, and the limit is 4"}, "/stream": {limit: 49, err: "larger than the limit of 49"},
		"/loop": {limit: 5, err: "more than 10 redirections"}, "/file": {limit: 5, err: "a redirection to file://"}, "/gone": {limit: 5, err: "status 404"},
	} {
		os.Remove(file)
		var out strings.Builder
		code := Main([]string{strconv.Itoa(want.limit), s.URL + path, file}, &out)
		if (code == 0) != (want.err == "") || !strings.Contains(out.String(), want.err) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: got exit code %d and %q, want %q", path, code, out.String(), want.err)
		}
		if want.err != "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil || !info.ModTime().Equal(want.at) || info.Mode() != 0o600 || info.Size() != 5 {
			t.Errorf("%s: got %+v, error %v, want five bytes of %v", path, info, err, want.at)
		}
	}
	if code := Main([]string{"0", s.URL, file}, io.Discard); code == 0 {
		t.Error("a limit of zero bytes was accepted")
	}
}

// A redirection from HTTPS to HTTP would let the network change the file.
func TestRedirectionDoesNotLoseTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "changed") }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/same" {
			_, _ = io.WriteString(w, "original")
			return
		}
		to := plain.URL
		if r.URL.Path == "/stay" {
			to = "/same"
		}
		http.Redirect(w, r, to, http.StatusFound)
	}))
	defer secure.Close()
	file := filepath.Join(t.TempDir(), "f")
	if err := run([]string{"100", secure.URL + "/leave", file}, secure.Client().Transport); err == nil || !strings.Contains(err.Error(), "a redirection to http://") {
		t.Errorf("redirection to HTTP: got %v", err)
	}
	if err := run([]string{"100", secure.URL + "/stay", file}, secure.Client().Transport); err != nil {
		t.Errorf("redirection to HTTPS: got %v", err)
	}
}
