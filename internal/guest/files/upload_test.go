package files_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/identity"
)

// service returns a file service for the current user with the given home.
func service(home string) *files.Service {
	me := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	return files.New(files.Config{
		Accounts: identity.Accounts{Users: identity.Fixed{me}, Default: "user"},
		Log:      slog.New(slog.DiscardHandler),
		Token:    func() string { return token },
	})
}

const token = "token"

// outside matches bodies with paths that could lead out of the test's directory.
var outside = regexp.MustCompile(`\.\.|\\|%2|(^|[^a-z0-9])/`)

// FuzzUploadMultipart checks that a successful answer names exactly the written files.
func FuzzUploadMultipart(f *testing.F) {
	part := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b\"\r\n\r\ncontent\r\n"
	for _, body := range []string{
		part + "--B--\r\n", part, part + part + "--B--", "--B--", "", "--B\r\n\r\n\r\n--B--",
		strings.Replace(part, "a/b", "x", 1) + part + "--B--\r\n",
		"--B\r\nContent-Disposition: form-data; name=file; filename*=utf-8''%ff%00\r\n\r\nx\r\n--B--",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if outside.Match(body) {
			return
		}
		home := t.TempDir()
		r := httptest.NewRequest("POST", "/files", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=B")
		r.Header.Set(files.TokenHeader, token)
		w := httptest.NewRecorder()
		service(home).Upload(w, r)
		if w.Code == 500 || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("upload: got %d %s, want JSON and no status 500", w.Code, w.Body)
		}
		if w.Code != 200 {
			return
		}
		var entries []files.Entry
		if err := json.Unmarshal(w.Body.Bytes(), &entries); err != nil {
			t.Fatal(err)
		}
		written := 0
		err := filepath.WalkDir(home, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				written++
			}
			return err
		})
		if err != nil || written != len(entries) || written == 0 {
			t.Errorf("%d files were written, but the answer is %s, %v", written, w.Body, err)
		}
	})
}
