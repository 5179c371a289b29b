package abuse_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
)

var diskAttacks = []attack{
	{name: "disk", users: both, run: fillDisk},
	{name: "sparse file", users: ordinary, run: sparseFile},
	{name: "deep directory", users: ordinary, run: deepDirectory},
	{name: "gzip bomb", users: ordinary, run: gzipBomb},
}

// fillDisk writes up to the disk limit. Files within the limit must be kept.
func fillDisk(t *testing.T, b *testSandbox) {
	b.sh(t, "head -c 16777216 /dev/zero > /tmp/control")
	res, err := b.exec(t, 30*time.Second, "head -c 1G /dev/zero > /tmp/fill")
	if err != nil || res.Hit != api.HitDiskFull {
		t.Errorf("fill the disk: got %v %+v, want %s", err, res, api.HitDiskFull)
	}
	size, err := strconv.ParseInt(b.sh(t, "cat /tmp/control /tmp/fill | wc -c"), 10, 64)
	if err != nil || size > small.DiskBytes {
		t.Errorf("got %d bytes on the disk (%v), want at most %d", size, err, small.DiskBytes)
	}
	b.sh(t, "rm /tmp/fill; head -c 16777216 /dev/zero > /tmp/again")
}

// sparseFile creates a file that is larger than any disk and has only holes.
func sparseFile(t *testing.T, b *testSandbox) {
	b.sh(t, "truncate -s 1T /tmp/sparse")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.environment.URL+"/files?path=/tmp/sparse", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.setGuestHeaders(req)
	req.Header.Set("Range", "bytes=1000000000-1000000009")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusPartialContent || len(data) != 10 {
		t.Errorf("download the sparse file: got %s, %d bytes, %v", resp.Status, len(data), err)
	}
	// A download of the file continues until its reader leaves.
	f, err := b.FS().WithContext(t.Context()).Open("tmp/sparse")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, f, 64<<20); err != nil || n != 64<<20 {
		t.Errorf("read the sparse file: got %d bytes, %v, want 64 MiB", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	requireAnswer(t, b.Sandbox)
}

// deepDirectory nests directories deeper than a path name can express.
func deepDirectory(t *testing.T, b *testSandbox) {
	const depth = 2000
	res, err := b.python(t, 30*time.Second, fmt.Sprintf(`
import os
os.makedirs("/tmp/deep")
os.chdir("/tmp/deep")
for i in range(%d):
    os.mkdir("d")
    os.chdir("d")
os.mknod("bottom")
`, depth))
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("nest the directories: %v %+v", err, res)
	}
	files := b.FS().WithContext(t.Context())
	if entries, err := files.ReadDir("tmp/deep"); err != nil || len(entries) != 1 {
		t.Errorf("list the deep directory: got %d entries, %v, want 1", len(entries), err)
	}
	if _, err := files.Stat("tmp/deep" + strings.Repeat("/d", depth) + "/bottom"); err != nil {
		t.Error(err)
	}
	if err := files.RemoveAll("tmp/deep"); err != nil {
		t.Error(err)
	}
	if _, err := files.Stat("tmp/deep"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the removed directory still exists: %v", err)
	}
	requireAnswer(t, b.Sandbox)
}

// bombSize is the uncompressed size of the gzip bomb, and bombPart the size of one of its members.
const (
	bombSize = 10 << 30
	bombPart = 64 << 20
)

// gzipBomb uploads a few megabytes that decompress to a hundred times the disk.
func gzipBomb(t *testing.T, b *testSandbox) {
	var part bytes.Buffer
	w := gzip.NewWriter(&part)
	if _, err := io.CopyN(w, zeros{}, bombPart); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if resp := b.upload(t, "/tmp/control", bytes.NewReader(gzipped(t, "small"))); resp.StatusCode != http.StatusOK {
		t.Errorf("control: %s", resp.Status)
	}
	var members []io.Reader
	for range bombSize / bombPart {
		members = append(members, bytes.NewReader(part.Bytes()))
	}
	resp := b.upload(t, "/tmp/bomb", io.MultiReader(members...))
	if resp.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("upload a gzip bomb: got %s, want %d", resp.Status, http.StatusInsufficientStorage)
	}
	requireAnswer(t, b.Sandbox)
}

// gzipped returns a compressed text.
func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// upload sends a compressed file and returns the answer without its body.
func (b *testSandbox) upload(t *testing.T, path string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.environment.URL+"/files?path="+path, body)
	if err != nil {
		t.Fatal(err)
	}
	b.setGuestHeaders(req)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return resp
}

// setGuestHeaders sets the headers that route a request to the sandbox's guest.
func (b *testSandbox) setGuestHeaders(r *http.Request) {
	info := b.Info()
	r.Header.Set("E2b-Sandbox-Id", info.ID)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", info.AccessToken)
}
