package guestmain

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// packed are files that a sandbox has changed, with an attribute each.
func packed(t *testing.T, files map[string][2]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, f := range files {
		h := &tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f[0]))}
		if f[1] != "" {
			h.PAXRecords = map[string]string{"SCHILY.xattr." + addedAttribute: f[1]}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A sandbox boots with the files of another one, and with its own certificate instead of the
// other's.
func TestBootFromAnArchive(t *testing.T) {
	was := addition{To: 9, Length: 9, Tail: 4, Sum: sum(nil, []byte("old\n"))}
	archive := packed(t, map[string][2]string{
		"mine": {"kept", ""}, "bundle": {"original\nold\nmine\n", was.String()}, "machine-id": {"x", ""},
	})
	cfg := config()
	cfg.Renew, cfg.Archive = guest.Copied, true
	cfg.Files = []guest.File{{Path: "/bundle", Mode: 0o644, Data: []byte("new\n"), Append: true}}
	r := bootIn(t, t.TempDir(), cfg, archive...)
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest says %q", output)
	}
	if got := r.file("mine"); got != "kept" {
		t.Errorf("a file of the archive: %q", got)
	}
	if got := r.file("bundle"); got != "original\nnew\nmine\n" {
		t.Errorf("the bundle: %q", got)
	}
	// Nothing of the archive is left where the next configuration is read.
	r.happens("resume")
	next := config()
	next.Renew = guest.Resumed
	r.configure(next)
	r.happens("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Errorf("the guest says %q", output)
	}
}

func TestBootFromABrokenArchive(t *testing.T) {
	cfg := config()
	cfg.Archive = true
	r := bootIn(t, t.TempDir(), cfg, packed(t, map[string][2]string{"mine": {"kept", ""}})[:1024]...)
	if output := r.nextLine(); !strings.HasPrefix(output, "crannog-guest: unpack") {
		t.Errorf("the guest says %q", output)
	}
}
