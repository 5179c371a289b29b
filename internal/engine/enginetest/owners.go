package enginetest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
)

// ownersRules check the owners of a workspace's files in the sandbox (F11 in
// docs/internals/regressions.md).
var ownersRules = []rule{
	{"owners/the-workspace-belongs-to-the-user", workspaceBelongsToUser},
	{"owners/permissions-hold-inside", permissionsHoldInside},
	{"owners/hold-in-a-copy", ownersHoldInACopy},
	{"owners/protected-paths-can-be-read", protectedPathsCanBeRead},
}

// statOwner prints owner, group and mode of paths.
const statOwner = "stat -c '%u:%g %a' "

// createOwnedWorkspace creates a workspace whose files have various modes and, if this process may
// change owners, various owners.
func createOwnedWorkspace(t testing.TB) string {
	t.Helper()
	ws := t.TempDir()
	for _, f := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{
		{"private", 0o600, 0}, {"none", 0, 0}, {"read-only", 0o444, 0}, {"dir/private", 0o600, 54321}, {"theirs", 0o640, 12345},
		{"set-id", 0o755 | os.ModeSetuid, 0}, {"dir/deep/file", 0o644, 1000},
	} {
		path := filepath.Join(ws, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.name), 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(path, f.uid, f.uid); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("private", filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(ws, "dir/deep"), 0o700), os.Chmod(ws, 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(ws, 54321, 54321), os.Chown(filepath.Join(ws, "dir"), 54321, 12345), os.Lchown(filepath.Join(ws, "link"), 7, 7)); err != nil {
			t.Fatal(err)
		}
	}
	return ws
}

// workspaceBelongsToUser checks that all files of a workspace belong to the sandbox's user.
func workspaceBelongsToUser(t testing.TB, c *Config) {
	ws := createOwnedWorkspace(t)
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	const listOwners = "cd /workspace && find . | sort | xargs " + statOwner
	b.want(t, listOwners, strings.TrimSpace(`1000:1000 700
1000:1000 755
1000:1000 700
1000:1000 644
1000:1000 600
1000:1000 777
1000:1000 0
1000:1000 600
1000:1000 444
1000:1000 4755
1000:1000 640`))
	// The control: files outside the workspace do not belong to the user.
	b.want(t, statOwner+"/ /etc /etc/passwd /workspace/..", "0:0 755\n0:0 755\n0:0 644\n0:0 755")
	b.want(t, `cd /workspace && cat private dir/private theirs dir/deep/file link && echo new > private && mv dir/private moved && rm -r dir/deep &&
		chmod 640 set-id && touch -d @5 theirs && chmod 600 none && cat none && mkdir dir/new && `+statOwner+"private moved dir/new theirs",
		"privatedir/privatetheirsdir/deep/fileprivatenone1000:1000 600\n1000:1000 600\n1000:1000 755\n1000:1000 640")
	// A file that root creates belongs to root, and a file that root gives away keeps its new
	// owner.
	if r := b.shAs(t, "root", "cd /workspace && echo r > roots && chmod 600 roots && chown 0:0 theirs && cat none moved"); r.code != 0 {
		t.Errorf("root in the sandbox cannot change owners: %+v", r)
	}
	b.want(t, "cd /workspace && cat roots theirs 2>/dev/null; "+statOwner+"roots theirs", "0:0 600\n0:0 640")
	// The host's files have not changed.
	if data, err := os.ReadFile(filepath.Join(ws, "private")); err != nil || string(data) != "private" {
		t.Errorf("the file on the host contains %q, %v; want it unchanged", data, err)
	}
}

// permissionsHoldInside checks that the user's permissions in the sandbox are enforced.
func permissionsHoldInside(t testing.TB, c *Config) {
	ws := createOwnedWorkspace(t)
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	b.want(t, "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | tr -d '\\t'",
		"CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapAmb:0000000000000000")
	if r := b.shAs(t, "root", "grep CapEff /proc/self/status"); strings.Contains(r.stdout, "0000000000000000") {
		t.Errorf("control: root has %s", r.stdout)
	}
	for _, attempt := range []string{
		"cat none", "echo x > read-only", "touch /etc/new", "echo x >> /etc/passwd", "chmod 777 /etc", "mkdir /new", "rm /etc/passwd",
		"cat /etc/shadow", "chown 0 private", "mv /etc/passwd /workspace/p", "ln -s x /usr/new",
	} {
		if r := b.sh(t, "cd /workspace && "+attempt); r.code == 0 {
			t.Errorf("%s succeeds as the user: %+v", attempt, r)
		}
	}
	// The control: root may do all of them.
	for _, attempt := range []string{"cat none", "echo x > read-only", "touch /etc/new", "mkdir /new", "chown 0 private", "cat /etc/shadow"} {
		if r := b.shAs(t, "root", "cd /workspace && "+attempt); r.code != 0 {
			t.Errorf("control: %s fails as root: %+v", attempt, r)
		}
	}
	// An unreadable file can still be listed, without an error.
	if r := b.sh(t, "cd /workspace && ls -l none && ls -l /etc/shadow"); r.code != 0 || r.stderr != "" {
		t.Errorf("unreadable files cannot be listed: %+v", r)
	}
	// A set-id file of the host is an ordinary file in the sandbox.
	b.want(t, "cd /workspace && cat /usr/bin/id > set-id; chmod 4755 set-id && ./set-id -u", "1000")
}

// ownersHoldInACopy checks that the owners of files are the same in copies.
func ownersHoldInACopy(t testing.TB, c *Config) {
	ws := createOwnedWorkspace(t)
	e := c.Open(t, t.TempDir())
	withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
	b := c.start(t, e, withWorkspace)
	b.want(t, "cd /workspace && echo x > made && cat private", "private")
	saved := save(t, b)
	other := c.copyOf(t, e, saved, withWorkspace, continuesAs(guest.Copied))
	spec := c.spec(b.id)
	withWorkspace(&spec)
	continuesAs(guest.RolledBack)(&spec)
	if err := saver(e).Replace(t.Context(), spec, saved); err != nil {
		t.Fatal(err)
	}
	rolledBack := attach(t, e, b.id)
	// The owners also survive a second checkpoint and restore.
	copyOfCopy := c.copyOf(t, e, save(t, other), withWorkspace, continuesAs(guest.Copied))
	for _, sandbox := range []*testSandbox{other, rolledBack, copyOfCopy} {
		// dir/private was not looked up before the state was saved.
		sandbox.want(t, "cd /workspace && "+statOwner+"made private dir/private theirs && cat dir/private && echo y > dir/private && "+statOwner+"dir/private",
			"1000:1000 644\n1000:1000 600\n1000:1000 600\n1000:1000 640\ndir/private1000:1000 600")
		if r := sandbox.sh(t, "cat /workspace/none"); r.code == 0 {
			t.Errorf("%s reads a file without read permission: %+v", sandbox.id, r)
		}
	}
	// A state cannot be restored with owners other than those of the save.
	spec = c.spec(newID())
	continuesAs(guest.Copied)(&spec)
	if err := saver(e).Restore(t.Context(), spec, saved); err == nil {
		t.Error("a state with a workspace is restored without one")
	}
}

// protectedPathsCanBeRead checks that the user can read, but not change, a protected path.
func protectedPathsCanBeRead(t testing.TB, c *Config) {
	ws := createOwnedWorkspace(t)
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) {
		s.Workspace, s.ReadOnly, s.Hide = ws, []string{"/workspace/private", "/workspace/dir"}, []string{"/workspace/dir/deep", "/workspace/theirs"}
	})
	b.want(t, "cd /workspace && cat private dir/private theirs && ls -A dir/deep && "+statOwner+"private dir dir/private",
		"privatedir/private1000:1000 600\n1000:1000 755\n1000:1000 600")
	for _, user := range []string{"user", "root"} {
		b.wantAll(t, false, user, "/workspace",
			"echo x > private", "echo x > dir/private", "touch dir/new", "mkdir dir/deep/new", "rm -f private", "echo x > theirs", "mv dir away",
			"unshare -Urm umount /workspace/dir", "unshare -Urm umount /workspace/dir/deep",
			"unshare -Urm sh -c 'mount -o remount,rw,bind /workspace/dir && touch /workspace/dir/new'")
	}
	b.want(t, "cd /workspace && rm none && echo x > new && echo done", "done")
}
