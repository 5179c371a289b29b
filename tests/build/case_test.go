package build_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

const goArch = runtime.GOARCH

// contextTime is the time of all files of a context.
var contextTime = time.Date(2019, 5, 6, 7, 8, 9, 0, time.UTC)

// buildCase is a build context of a file in testdata. Its comment has directives: mode, owner, link,
// hard, mkdir, tar and gzip prepare files; arg and flag are options; first builds first:1 from the
// directory first; fails means that no builder accepts it; differs names differences.
type buildCase struct {
	name         string
	dir          string
	options      []string
	first, fails bool
	// differs lists the files and settings that Crannog makes as BuildKit does, and not as the
	// classic builder (docs/how-to/write-a-template.md).
	differs []string
	want    string
}

// loadCase prepares the context of a case.
func loadCase(t *testing.T, file string) buildCase {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := buildCase{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), dir: t.TempDir()}
	for _, f := range archive.Files {
		if f.Name == "want" {
			c.want = string(f.Data)
			continue
		}
		path := filepath.Join(c.dir, f.Name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, f.Data, 0o644))
	}
	for line := range strings.Lines(string(archive.Comment)) {
		words := strings.Fields(line)
		if len(words) > 0 {
			c.directive(t, words)
		}
	}
	must(t, filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(path, contextTime, contextTime)
	}))
	return c
}

// directive carries out one line of the comment. Other lines are text.
func (c *buildCase) directive(t *testing.T, words []string) {
	t.Helper()
	at := func(i int) string { return filepath.Join(c.dir, words[i]) }
	switch words[0] {
	case "mode":
		n, err := strconv.ParseUint(words[1], 8, 12)
		must(t, err)
		must(t, exec.Command("chmod", strconv.FormatUint(n, 8), at(2)).Run())
	case "owner":
		must(t, exec.Command("chown", words[1], at(2)).Run())
	case "link":
		must(t, os.Symlink(words[2], at(1)))
	case "hard":
		must(t, os.Link(at(2), at(1)))
	case "mkdir":
		must(t, os.Mkdir(at(1), 0o755))
	case "tar":
		out, err := exec.Command("tar", "-c", "-a", "-f", at(1), "-C", at(2), "--mtime", "2018-01-02 03:04:05Z", "--sort=name", ".").CombinedOutput()
		if err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
	case "gzip":
		data, err := os.ReadFile(at(2))
		must(t, err)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err = z.Write(data)
		must(t, err)
		must(t, z.Close())
		must(t, os.WriteFile(at(1), b.Bytes(), 0o644))
	case "arg":
		c.options = append(c.options, "--build-arg", words[1])
	case "flag":
		for i, w := range words[1:] {
			if words[1] == "-f" && i == 1 {
				w = at(2)
			}
			c.options = append(c.options, strings.ReplaceAll(w, "src=", "src="+c.dir+"/"))
		}
	case "first":
		c.first = true
	case "differs":
		c.differs = append(c.differs, words[1:]...)
	case "fails":
		c.fails = true
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is one file of an image.
type entry struct {
	kind     string
	mode     int64
	uid, gid int
	// text is the content of a file, or the target of a link.
	text string
	// names are the other names of a file.
	names string
	at    time.Time
}

func (e entry) String() string {
	s := fmt.Sprintf("%s %04o %d:%d %.80q", e.kind, e.mode, e.uid, e.gid, e.text)
	if e.names != "" {
		s += " = " + e.names
	}
	return s
}

// kindOf returns the word for a kind of file.
func kindOf(flag byte) string {
	switch flag {
	case tar.TypeDir:
		return "dir"
	case tar.TypeSymlink:
		return "link"
	case tar.TypeFifo:
		return "pipe"
	case tar.TypeReg:
		return "file"
	}
	return fmt.Sprintf("kind %q", flag)
}
