package give_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/give"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var user = identity.User{Name: "user", UID: 54321, GID: 54322}

// owner returns the user and group of a file.
func owner(t *testing.T, path string) [2]uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return [2]uint32{st.Uid, st.Gid}
}

func TestF21CreatedFilesBelongToUser(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	root := t.TempDir()
	f, err := give.File(user, root+"/app/src/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("x"); err != nil || f.Close() != nil {
		t.Error(err)
	}
	if err := give.Dirs(user, root+"/data/x/"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/app", "/app/src", "/app/src/a.txt", "/data", "/data/x"} {
		if got := owner(t, root+name); got != [2]uint32{54321, 54322} {
			t.Errorf("owner of %s: got %v, want the user", name, got)
		}
	}
	if got := owner(t, root); got != [2]uint32{0, 0} {
		t.Errorf("owner of the existing directory: got %v, want root", got)
	}
}

// A program inside may have put a link at the path, to redirect root's write. Root does not follow
// it, and no existing file changes its owner or content.
func TestF21FollowsNoLinksAndChangesNoOwners(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	root := t.TempDir()
	for _, err := range []error{
		os.Mkdir(root+"/etc", 0o755), os.WriteFile(root+"/etc/passwd", []byte("root"), 0o644),
		os.Symlink(root+"/etc", root+"/dir"), os.Symlink(root+"/etc/passwd", root+"/file"),
		os.Symlink(root+"/etc/new", root+"/dangling"), os.Symlink("etc", root+"/relative"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"/dir/new": fs.ErrPermission, "/dir/sub/new": fs.ErrPermission, "/relative/new": fs.ErrPermission, "/file": fs.ErrExist,
		"/dangling": fs.ErrExist, "/dangling/x": fs.ErrPermission, "/etc/passwd": fs.ErrExist, "/etc/passwd/x": syscall.ENOTDIR,
	} {
		if f, err := give.File(user, root+path); !errors.Is(err, want) {
			t.Errorf("File at %s: got %v, %v, want %v", path, f, err, want)
		}
	}
	if err := give.Dirs(user, root+"/dir/made"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a directory below a link: %v", err)
	}
	names, err := filepath.Glob(root + "/etc/*")
	if err != nil || len(names) != 1 || owner(t, names[0]) != [2]uint32{0, 0} {
		t.Errorf("files behind the links: got %v %v, want only passwd of root", names, err)
	}
	if data, err := os.ReadFile(root + "/etc/passwd"); err != nil || string(data) != "root" {
		t.Errorf("content of passwd: got %q %v", data, err)
	}
	// Without a link the same call succeeds.
	if f, err := give.File(user, root+"/etc/new"); err != nil || f.Close() != nil {
		t.Errorf("File without a link: %v", err)
	}
}

func TestF21Possible(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/app", Err: syscall.EACCES}
	for _, c := range []struct {
		actor    identity.Actor
		accounts identity.Accounts
		user     identity.User
		err      error
		want     bool
	}{
		{identity.Actor{Switch: true}, identity.Accounts{}, user, denied, true},
		{identity.Actor{}, identity.Accounts{}, user, denied, false},
		{identity.Actor{Switch: true}, identity.Accounts{NoRoot: true}, user, denied, false},
		{identity.Actor{Switch: true}, identity.Accounts{}, identity.User{}, denied, false},
		{identity.Actor{Switch: true}, identity.Accounts{}, user, syscall.EROFS, false},
		{identity.Actor{Switch: true}, identity.Accounts{}, user, nil, false},
	} {
		if got := give.Possible(c.actor, c.accounts, c.user, c.err); got != c.want {
			t.Errorf("Possible for %+v: got %v, want %v", c, got, c.want)
		}
	}
}
