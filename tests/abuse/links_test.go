package abuse_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var linkAttacks = []attack{
	{name: "racing links", users: both, run: racingLinks},
}

// racingLinks replaces the target of a link many thousands of times while files are transferred
// through it. One of the targets is a directory of the host.
func racingLinks(t *testing.T, b *testSandbox) {
	const canary = "a file of the host"
	replacements := 30_000
	if hosttest.Full() {
		replacements = 100_000
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	b.sh(t, "mkdir -p /tmp/race/one /tmp/race/two && ln -s one /tmp/race/at && chmod -R a+rwX /tmp/race")
	raceDone := make(chan string, 1)
	go func() {
		res, err := b.python(t, 4*time.Minute, fmt.Sprintf(`
import os
os.chdir('/tmp/race')
places = ['one', %q, 'two', '/tmp/race/one']
for i in range(%d):
    os.symlink(places[i %% 4], 'next')
    os.replace('next', 'at')
print('raced')`, outside, replacements))
		if err != nil {
			t.Error(err)
		}
		raceDone <- strings.TrimSpace(res.Stdout)
	}()
	var compressed bytes.Buffer
	pack := gzip.NewWriter(&compressed)
	_, _ = pack.Write([]byte("uploaded"))
	if err := pack.Close(); err != nil {
		t.Fatal(err)
	}
	uploads, downloads := 0, 0
	for done := ""; done == ""; {
		select {
		case done = <-raceDone:
			if done != "raced" {
				t.Errorf("control: the race did not end: %q", done)
			}
		default:
		}
		// The link's current target decides whether the upload works.
		if b.upload(t, "/tmp/race/at/f", bytes.NewReader(compressed.Bytes())).StatusCode == http.StatusOK {
			uploads++
		}
		if data, status := b.download(t, "/tmp/race/at/f"); bytes.Contains(data, []byte(canary)) {
			t.Fatalf("a download shows the host's file: %q", data)
		} else if status == http.StatusOK {
			downloads++
		}
	}
	if uploads == 0 || downloads == 0 {
		t.Errorf("control: got %d uploads and %d downloads, want some of each", uploads, downloads)
	}
	if got := b.sh(t, "cmp /tmp/race/one/f /tmp/race/two/f && cat /tmp/race/one/f"); got != "uploaded" {
		t.Errorf("control: the uploads did not reach both directories: %q", got)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("the host's directory has %v, %v, want one file", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(data) != canary {
		t.Errorf("the host's file has %q, %v", data, err)
	}
}

// download reads a file through the server.
func (b *testSandbox) download(t *testing.T, path string) ([]byte, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.environment.URL+"/files?path="+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.setGuestHeaders(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, 0 // the file was removed while it was read
	}
	return data, resp.StatusCode
}
