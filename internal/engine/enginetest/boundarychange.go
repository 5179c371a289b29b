package enginetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// describe returns the metadata and a checksum of a file, without its access time.
func describe(t testing.TB, path string) string {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		t.Fatal(err)
	}
	var sum [32]byte
	if s.Mode&unix.S_IFMT == unix.S_IFREG {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum = sha256.Sum256(data)
	}
	attributes := make([]byte, 4096)
	n, _ := unix.Llistxattr(path, attributes)
	return fmt.Sprintf("%d %o %d:%d %d links, %d bytes %x, %v %v %q", s.Ino, s.Mode, s.Uid, s.Gid, s.Nlink, s.Size, sum[:8], s.Mtim, s.Ctim, attributes[:max(n, 0)])
}

// shownFile creates a file on the host that every user may write, below parent, a directory that
// sandboxes see. It returns the new directory that contains the file's directory, and the file's
// path.
func shownFile(t testing.TB, parent string) (dir, path string) {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "crannog-canary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "dir", "file")
	if err := os.Mkdir(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("content of the host"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(path)} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// shownDirs maps directories of the host that sandboxes see to their paths in the sandbox.
var shownDirs = map[string]string{"/usr/share": "/usr/share", "/usr/bin": "/usr/bin", "/usr/sbin": "/sbin"}

// hostFilesDoNotChange checks that attacks on files that a sandbox sees do not change them on the
// host.
func hostFilesDoNotChange(t testing.TB, c *Config) {
	wantChangesOnHost(t)
	// Sandboxes see the tree of the template and programs of the host. If this process is root, it
	// creates files for each persona among these programs. The host's own programs are not
	// attacked, because a broken boundary would damage the machine.
	var shown []string
	if dir := c.Image.View().Dir; dir != "" {
		shown = append(shown, dir)
	}
	paths := map[persona][]string{}
	for _, as := range []persona{asUser, asOwner, asRoot} {
		if os.Geteuid() == 0 {
			for place, inside := range shownDirs {
				dir, path := shownFile(t, place)
				shown = append(shown, dir)
				paths[as] = append(paths[as], inside+strings.TrimPrefix(path, place))
			}
		}
		paths[as] = append(paths[as], "/var/log/lastlog", "/etc/shadow", "/etc/passwd")
	}
	before := trees(t, shown)
	b := c.start(t, c.Open(t, t.TempDir()))
	for _, as := range personas(b.e) {
		succeeded := map[string]bool{}
		for _, a := range b.probe(t, c, as, append([]string{changeFiles}, paths[as]...)...) {
			succeeded[a.Name] = succeeded[a.Name] || a.succeeded()
		}
		// Control: root in the sandbox can change visible files in its own copy, so the attacks do
		// not fail only for lack of permission.
		for _, name := range []string{"write", "map", "mode", "owner", "replace", "remove"} {
			if as == asRoot && !succeeded[name] && !b.e.Info().NoRoot {
				t.Errorf("control: root in the sandbox cannot %s any file", name)
			}
		}
		for _, name := range []string{"splice", "vmsplice"} {
			if succeeded[name] {
				t.Errorf("%s onto a file that is open for reading succeeds as %s", name, as)
			}
		}
		for _, difference := range differences(before, trees(t, shown)) {
			t.Errorf("on the host after changes as %s: %s", as, difference)
		}
	}
}

// wantChangesOnHost is the control: on the host, each of the changes succeeds, with write
// permission where a correct kernel requires it.
func wantChangesOnHost(t testing.TB) {
	t.Helper()
	t.Setenv(traceeEnv, strconv.Itoa(os.Getpid()))
	for _, change := range fileChanges {
		dir, path := shownFile(t, t.TempDir())
		before := tree(t, dir)
		err := change.try(path, true)
		switch {
		case len(differences(before, tree(t, dir))) > 0:
		case os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission), change.name == "attribute" && errors.Is(err, unix.EOPNOTSUPP):
			t.Logf("%s has no control here: %v", change.name, err)
		default:
			t.Errorf("control: %s changes nothing on the host: %v", change.name, err)
		}
	}
}

// trees returns the metadata of the files below several directories.
func trees(t testing.TB, dirs []string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		maps.Copy(all, tree(t, dir))
	}
	return all
}

// hostStateDoesNotChange checks that root in the sandbox cannot change settings of the whole
// machine: kernel settings, host name, clock.
func hostStateDoesNotChange(t testing.TB, c *Config) {
	b := c.start(t, c.Open(t, t.TempDir()))
	state := func() string {
		name, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		fmt.Fprintln(&text, name)
		for _, path := range append(slices.Sorted(maps.Keys(settings)), "/proc/swaps", "/proc/sys/kernel/core_pattern", "/proc/self/personality") {
			data, err := os.ReadFile(path)
			fmt.Fprintf(&text, "%s %q %v\n", path, data, err)
		}
		return text.String()
	}
	before, start := state(), time.Now()
	changed := 0
	for _, a := range b.probe(t, c, asRoot, changeSettings) {
		if a.succeeded() {
			changed++
		}
	}
	if changed == 0 && ownKernel(b.e) {
		t.Error("control: root in the sandbox changes no setting of the sandbox's own kernel")
	}
	// The clock is moved by so little that a success would not harm the machine.
	r := b.shAs(t, "root", "date -s '+1 minute'; hostname elsewhere; domainname elsewhere; setarch -R true; swapon /tmp; true")
	if r.code != 0 {
		t.Fatalf("the attempts to change the host's settings did not run: %+v", r)
	}
	if after := state(); after != before {
		t.Errorf("the host was %s and is %s", before, after)
	}
	// The attack has moved the clock if the wall clock advanced more than the monotonic clock.
	if end := time.Now(); end.Round(0).Sub(start.Round(0))-end.Sub(start) > 30*time.Second {
		t.Errorf("the host's clock was %v and is %v", start, end)
	}
}
