package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

var coverRules = []rule{
	// P4 of docs/reference/promises.md
	{"cover/mounts-are-shown-at-their-paths", mountsAreShown},
	{"cover/volumes-are-shared-with-the-host", volumesAreShared},
	{"cover/volumes-are-bounded-by-their-file-system", volumesAreBounded},
	{"cover/volumes-are-no-part-of-a-state", volumesAreNotSaved},
	{"cover/hidden-paths-are-empty", hiddenPathsAreEmpty},
	{"cover/absent-paths-do-not-exist", absentPathsDoNotExist},
	{"cover/read-only-paths-cannot-be-changed", readOnlyPathsCannotBeChanged},
	{"cover/read-only-moves-with-a-directory-above", protectedPathMovesWithParent},
	{"cover/unprotectable-paths-are-refused", func(t testing.TB, c *Config) {
		ws := coverTree(t)
		for _, path := range []string{"/workspace/none", "/workspace/link", "workspace/keep", "/workspace/../etc", "/", "/proc/self"} {
			spec := c.spec(newID())
			spec.Workspace, spec.ReadOnly = ws, []string{path}
			err := c.Open(t, t.TempDir()).Create(t.Context(), spec)
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("read-only %s: got %v, want invalid", path, err)
			}
		}
	}},
	{"cover/hiding-does-not-follow-links-out", func(t testing.TB, c *Config) {
		outside := filepath.Join(t.TempDir(), "outside")
		if err := os.WriteFile(outside, []byte("host"), 0o644); err != nil {
			t.Fatal(err)
		}
		ws := t.TempDir()
		for name, to := range map[string]string{"out": outside, "up": "../../../../../../etc/hostname", "inside": "keep"} {
			if err := os.Symlink(to, filepath.Join(ws, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(ws, "keep"), []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) {
			s.Workspace, s.Hide = ws, []string{"/workspace/out", "/workspace/up", "/workspace/inside"}
		})
		b.want(t, "cat /workspace/keep", "")
		if data, err := os.ReadFile(outside); err != nil || string(data) != "host" {
			t.Errorf("the file on the host contains %q, %v; want host", data, err)
		}
	}},
}

// coverTree creates a workspace with files to hide and to protect.
func coverTree(t testing.TB) string {
	t.Helper()
	ws := t.TempDir()
	for path, text := range map[string]string{
		".env": "TOKEN=canary-31", "secrets/key": "canary-31", "secrets/deep/key": "canary-31", "keep": "plain",
		".git/config": "[core]", ".git/hooks/pre-commit": "#!/bin/sh", ".git/HEAD": "ref", "rules.md": "be good",
	} {
		path = filepath.Join(ws, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("keep", filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	return ws
}

// hiddenPathsAreEmpty checks that hidden files cannot be read.
func hiddenPathsAreEmpty(t testing.TB, c *Config) {
	ws := coverTree(t)
	e := c.Open(t, t.TempDir())
	withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
	// The control: the same search finds files that are not hidden.
	c.start(t, e, withWorkspace).want(t, search, "3")
	b := c.start(t, e, withWorkspace, func(s *engine.Spec) { s.Hide = toHide })
	wantHidden(t, b)
	b.want(t, "cd /workspace && cat keep && echo x > new && rm keep && cat new", "plainx")
}

// toHide and toProtect are paths of a coverTree.
var (
	toHide    = []string{"/workspace/secrets/deep", "/workspace/.env", "/workspace/secrets", "/workspace/none", "/workspace/keep/none"}
	toProtect = []string{"/workspace/rules.md", "/workspace/.git/hooks"}
)

// search counts the readable secrets in a coverTree.
const search = "cd /workspace && grep -r canary-31 . 2>/dev/null | wc -l"

// wantHidden checks that no path of toHide can be read or changed.
func wantHidden(t testing.TB, b *testSandbox) {
	t.Helper()
	for _, user := range []string{"user", "root"} {
		if r := b.shAs(t, user, search); strings.TrimSpace(r.stdout) != "0" {
			t.Errorf("hidden files are readable as %s: %+v", user, r)
		}
		if r := b.shAs(t, user, "cat /workspace/.env /workspace/secrets/key; ls -A /workspace/secrets"); r.stdout != "" {
			t.Errorf("hidden files are readable as %s: %+v", user, r)
		}
		b.wantAll(t, false, user, "/workspace",
			"echo x > .env", "rm -f .env", "mv .env other", "ln .env other", "touch secrets/new", "rmdir secrets", "mv secrets other",
			"mkdir secrets/deep", "chmod 777 .env", "umount /workspace/.env", "umount /workspace/secrets", "ln -sfn keep .env",
			// The following attempts run as root of a separate mount namespace, in which the
			// program may mount.
			"unshare -Urm umount /workspace/.env", "unshare -Urm umount /workspace/secrets", "unshare -Urm umount -l /workspace/secrets",
			"unshare -Urm sh -c 'mkdir -p /tmp/o && mount --bind /workspace /tmp/o && grep -r canary-31 /tmp/o'",
			"unshare -Urm sh -c 'mkdir -p /tmp/o && mount --rbind /workspace /tmp/o && { umount /tmp/o/secrets; grep -r canary-31 /tmp/o; }'")
	}
}

// protectedAttempts would change the paths of toProtect.
var protectedAttempts = []string{
	"echo x >> rules.md", "chmod 777 rules.md", "touch -d yesterday rules.md", "ln -sf keep rules.md", "mv keep rules.md", "mv rules.md away", "rm -f rules.md",
	"echo x > .git/hooks/new", "echo x >> .git/hooks/pre-commit", "mv .git/hooks/pre-commit .git/hooks/x",
	"mkdir .git/hooks/d", "rm .git/hooks/pre-commit", "chmod 777 .git/hooks", "mv .git/hooks .git/old", "rm -r .git/hooks",
}

// readOnlyPathsCannotBeChanged checks that no attempt changes a protected path.
func readOnlyPathsCannotBeChanged(t testing.TB, c *Config) {
	ws := coverTree(t)
	e := c.Open(t, t.TempDir())
	withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
	// The control: each attempt succeeds in a sandbox without protection.
	unprotected := c.start(t, e, withWorkspace)
	control := make([]string, len(protectedAttempts))
	for i, attempt := range protectedAttempts {
		control[i] = "cp -r /workspace /tmp/w && cd /tmp/w && " + attempt + " && rm -rf /tmp/w"
	}
	unprotected.wantAll(t, true, "user", "/", control...)
	if ownKernel(e) {
		unprotected.want(t, "unshare -Urm sh -c 'mkdir -p /tmp/o && mount --bind /workspace /tmp/o && cat /tmp/o/rules.md && umount /tmp/o'", "be good")
	}
	b := c.start(t, e, withWorkspace, func(s *engine.Spec) { s.ReadOnly = toProtect })
	wantProtected(t, b)
	b.want(t, "cd /workspace && echo x > .git/HEAD && mv keep kept && cat .git/HEAD kept", "x\nplain")
}

// protectedPathMovesWithParent checks that a directory above a protected path can be renamed, and
// that the path stays protected.
func protectedPathMovesWithParent(t testing.TB, c *Config) {
	ws := coverTree(t)
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace, s.ReadOnly = ws, toProtect })
	b.want(t, "cd /workspace && mv .git moved && cat moved/hooks/pre-commit", "#!/bin/sh")
	if r := b.sh(t, "cd /workspace && echo x > moved/hooks/pre-commit"); r.code == 0 {
		t.Errorf("no longer protected after a rename of a directory above: %+v", r)
	}
}

// wantProtected checks that all paths of toProtect can be read and cannot be changed.
func wantProtected(t testing.TB, b *testSandbox) {
	t.Helper()
	for _, user := range []string{"user", "root"} {
		b.wantAll(t, false, user, "/workspace", slices.Concat(protectedAttempts, []string{
			"umount rules.md", "mount -o remount,rw,bind rules.md",
			"unshare -Urm umount /workspace/rules.md", "unshare -Urm sh -c 'mount -o remount,rw,bind /workspace/rules.md && echo x >> rules.md'",
			"unshare -Urm sh -c 'mkdir -p /tmp/o && mount --bind /workspace /tmp/o && echo x >> /tmp/o/rules.md'",
		})...)
	}
	b.want(t, "cd /workspace && cat rules.md .git/hooks/pre-commit", "be good#!/bin/sh")
}

// absentPathsDoNotExist checks that no program can reach an absent file, and that its name can be
// used.
func absentPathsDoNotExist(t testing.TB, c *Config) {
	ws := coverTree(t)
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) {
		s.Workspace, s.Absent = ws, []string{"/workspace/.env", "/workspace/secrets", "/workspace/none"}
		s.Boot.Config = c.absent(s.ID, s.Absent)
	})
	b.want(t, search, "0")
	for _, user := range []string{"user", "root"} {
		for _, attempt := range []string{
			"cat .env", "ls secrets", "rm -f .env; cat .env", "mkdir secrets && cat secrets/key; rmdir secrets; test -e secrets",
			"unshare -Urm sh -c 'mkdir -p /tmp/o && mount --bind /workspace /tmp/o && grep -r canary-31 /tmp/o'",
		} {
			if r := b.shAs(t, user, "cd /workspace && "+attempt); r.code == 0 || strings.Contains(r.stdout, "canary") {
				t.Errorf("%s succeeds as %s: %+v", attempt, user, r)
			}
		}
	}
	b.want(t, "cd /workspace && echo own > .env && mv .env e && cat e && mkdir -p secrets/deep && ls -A secrets", "own\ndeep")
	if data, err := os.ReadFile(filepath.Join(ws, ".env")); err != nil || string(data) != "TOKEN=canary-31" {
		t.Errorf("the file on the host contains %q, %v; want it unchanged", data, err)
	}
}
