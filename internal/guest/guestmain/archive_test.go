package guestmain

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// archiveOf returns a tar of files by name. Each has its content and the value of addedAttribute.
func archiveOf(t *testing.T, files map[string][2]string) []byte {
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

// A sandbox that boots with an archive has the files of another sandbox, but its own certificate.
func TestBootFromArchive(t *testing.T) {
	oldAddition := addition{To: 9, Length: 9, Tail: 4, Sum: sum(nil, []byte("old\n"))}
	archive := archiveOf(t, map[string][2]string{
		"mine": {"kept", ""}, "bundle": {"original\nold\nmine\n", oldAddition.String()}, "machine-id": {"x", ""},
	})
	cfg := config()
	cfg.Renew, cfg.Archive = guest.Copied, true
	cfg.Files = []guest.File{{Path: "/bundle", Mode: 0o644, Data: []byte("new\n"), Append: true}}
	r := bootIn(t, t.TempDir(), cfg, archive...)
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest printed %q", output)
	}
	if got := r.file("mine"); got != "kept" {
		t.Errorf("file of the archive: got %q", got)
	}
	if got := r.file("bundle"); got != "original\nnew\nmine\n" {
		t.Errorf("bundle: got %q, want the sandbox's own certificate", got)
	}
	// No data of the archive remains on the input from which the next configuration is read.
	r.sendEvent("resume")
	next := config()
	next.Renew = guest.Resumed
	r.configure(next)
	r.sendEvent("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Errorf("the guest printed %q", output)
	}
}

func TestBootFailsWithBrokenArchive(t *testing.T) {
	cfg := config()
	cfg.Archive = true
	r := bootIn(t, t.TempDir(), cfg, archiveOf(t, map[string][2]string{"mine": {"kept", ""}})[:1024]...)
	if output := r.nextLine(); !strings.HasPrefix(output, "crannog-guest: unpack") {
		t.Errorf("the guest printed %q", output)
	}
}
