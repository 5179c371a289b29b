package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedPath matches a file or folder of the repository in a code span.
var namedPath = regexp.MustCompile("`((?:api|bench|cmd|console|docs|internal|proto|tests)/[A-Za-z0-9_./-]+)`")

// historical is the page whose entries name files as they were when the entry was written.
const historical = "CHANGELOG.md"

// missingPaths lists the files and folders that a page names and that do not exist.
func missingPaths(p page, stat func(path string) (fs.FileInfo, error)) (missing []string, named int) {
	for _, l := range p.prose {
		for _, m := range namedPath.FindAllStringSubmatch(l.text, -1) {
			named++
			if _, err := stat(strings.TrimSuffix(m[1], "/")); err != nil {
				missing = append(missing, m[1])
			}
		}
	}
	return missing, named
}

// TestNamedFilesExist finds pages that name a file that has moved.
func TestNamedFilesExist(t *testing.T) {
	total := 0
	for _, p := range pages(t) {
		if p.path == historical {
			continue
		}
		missing, named := missingPaths(p, func(path string) (fs.FileInfo, error) {
			return os.Stat(filepath.Join("../../..", path))
		})
		total += named
		for _, path := range missing {
			t.Errorf("%s names %s, which does not exist", p.path, path)
		}
	}
	if total < 100 {
		t.Errorf("found %d names", total)
	}
}

func TestMissingPathsAreFound(t *testing.T) {
	p := readPage("docs/a.md", "`internal/here.go` and `internal/gone.go`, `tests/work/`, not `internal/*.go` or `gone.go`\n")
	missing, named := missingPaths(p, func(path string) (fs.FileInfo, error) {
		if path == "internal/gone.go" {
			return nil, fs.ErrNotExist
		}
		return nil, nil
	})
	if named != 3 || !slices.Equal(missing, []string{"internal/gone.go"}) {
		t.Errorf("found %q of %d", missing, named)
	}
}
