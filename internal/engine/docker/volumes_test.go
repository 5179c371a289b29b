package docker

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// A container that shows another directory than the volume is found out, also if its image has a
// link at the path.
func TestVolumeIsCompared(t *testing.T) {
	dir := t.TempDir()
	volume, inside := filepath.Join(dir, "volume"), filepath.Join(dir, "root")
	for _, d := range []string{volume, filepath.Join(inside, "data")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(volume, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		root, target string
		same, fails  bool
	}{
		"the volume":                   {root: "/", target: volume, same: true},
		"the directory below it":       {root: inside, target: "/data"},
		"a link to the host's volume":  {root: inside, target: "/link", fails: true},
		"nothing":                      {root: inside, target: "/none", fails: true},
		"a path that leaves the root":  {root: inside, target: "/../../.." + volume, fails: true},
		"the host's path in container": {root: inside, target: volume, fails: true},
	} {
		root, err := os.OpenFile(c.root, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		same, err := sameDirectory(root, engine.Volume{Source: volume, Target: c.target})
		if same != c.same || (err != nil) != c.fails {
			t.Errorf("%s: got %v, %v", name, same, err)
		}
		root.Close()
	}
}
