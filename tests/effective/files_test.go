package effective_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// on creates a sandbox under a policy about files.
func (r *rig) on(document string, opts ...crannog.CreateOption) *crannog.Sandbox {
	r.t.Helper()
	return r.must(append(opts, crannog.Policy("policy: v1\nname: task\n"+document))...)
}

// says returns what a shell line prints, and whether it succeeds.
func (r *rig) says(sb *crannog.Sandbox, user, line string) (string, bool) {
	r.t.Helper()
	res, err := sb.Exec(r.t.Context(), api.Exec{Cmd: []string{"sh", "-c", line}, User: user, TimeoutSeconds: 1200})
	if err != nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimSpace(res.Stdout), res.ExitCode == 0
}

// writes checks that a user can create a file in exactly these directories.
func (r *rig) writes(sb *crannog.Sandbox, user, yes, no string) {
	r.t.Helper()
	for dir := range strings.FieldsSeq(yes) {
		if _, ok := r.says(sb, user, fmt.Sprintf("echo x > %s/tried && rm %s/tried", dir, dir)); !ok {
			r.t.Errorf("%q cannot write %s", user, dir)
		}
	}
	for dir := range strings.FieldsSeq(no) {
		if out, ok := r.says(sb, user, fmt.Sprintf("echo x > %s/tried; test -e %s/tried", dir, dir)); ok {
			r.t.Errorf("%q writes %s: %s", user, dir, out)
		}
	}
}

// nobodyIsRoot checks that nothing can be done as root.
func (r *rig) nobodyIsRoot(sb *crannog.Sandbox) {
	r.t.Helper()
	_, err := sb.Exec(r.t.Context(), api.Exec{Cmd: []string{"true"}, User: "root"})
	if !errors.Is(err, crannog.ErrInvalid) && !errors.Is(err, crannog.ErrUnauthenticated) && !errors.Is(err, crannog.ErrNotFound) {
		r.t.Errorf("root: %v", err)
	}
}

// P4: no user can write what a policy does not allow to be written.
func TestWhatMayBeWritten(t *testing.T) {
	r := newRig(t)
	const all = "/workspace /tmp /var/tmp /home/user"
	free := r.on("")
	r.writes(free, "", all, "/usr /etc /")
	r.writes(free, "root", all+" /usr /etc /", "")

	const some = "filesystem: {write: [/workspace, /tmp]}\n"
	sb := r.on(some)
	r.writes(sb, "", "/workspace /tmp /tmp/../workspace", "/var/tmp /home/user /usr /usr/local /etc / /tmp/../usr")
	r.nobodyIsRoot(sb)

	// The same holds with a workspace, whose files belong to the user (F11).
	ws := tree(t)
	shown := r.on("", crannog.Workspace(ws))
	r.writes(shown, "root", "/workspace /usr", "")
	sb = r.on(some, crannog.Workspace(ws))
	r.writes(sb, "", "/workspace /workspace/.git/hooks /tmp", "/var/tmp /home/user /usr /usr/local /etc /")
	r.nobodyIsRoot(sb)
	sb = r.on("filesystem: {write: [/tmp]}\n", crannog.Workspace(ws))
	r.writes(sb, "", "/tmp", "/workspace /workspace/.git /var/tmp /home/user /usr /etc /")
	if got := r.sh(sb, "cat /workspace/main.go"); got != "package main" {
		t.Errorf("it reads %q", got)
	}
	sb = r.on("filesystem: {workspace: {writable: false}}\n", crannog.Workspace(ws))
	r.writes(sb, "", "/tmp /home/user", "/workspace /workspace/.git")
	r.writes(sb, "root", "/tmp /usr", "/workspace /workspace/.git")

	// A part of the user's own directory cannot be listed alone.
	for _, path := range []string{"/workspace/out", "/home/user/x/y"} {
		_, err := r.create(crannog.Policy("policy: v1\nname: task\nfilesystem: {write: [/tmp, " + path + "]}\n"))
		var e *crannog.Error
		if !errors.As(err, &e) || e.Code != "policy_writes_part" {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A path with .. is invalid.
	for _, list := range []string{"[/workspace/../etc]", "[workspace]", "[/tmp/.]"} {
		if _, err := r.create(crannog.Policy("policy: v1\nname: task\nfilesystem: {write: " + list + "}\n")); !errors.Is(err, crannog.ErrInvalid) {
			t.Errorf("%s: %v", list, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(ws, "main.go")); err != nil || string(data) != "package main" {
		t.Errorf("the host's file: %q, %v", data, err)
	}
}

// P4: paths that a policy does not allow to be read show nothing.
func TestWhatMayBeRead(t *testing.T) {
	r := newRig(t)
	const look = "ls -A /usr/share | wc -l; ls -A /usr/share/../share | wc -l; test -d /usr/bin && echo programs"
	free := r.on("")
	if got := r.sh(free, look); strings.HasPrefix(got, "0") || !strings.HasSuffix(got, "programs") {
		t.Fatalf("control: %q", got)
	}
	const read = "read: [/usr/bin, /usr/sbin, /usr/lib, /usr/lib64, /bin, /sbin, /lib, /lib64, /etc, /proc/self]"
	for _, document := range []string{
		"filesystem: {" + read + "}\n",
		"filesystem: {" + read + ", write: [/workspace, /tmp]}\n",
	} {
		sb := r.on(document)
		if got := r.sh(sb, look); got != "0\n0\nprograms" {
			t.Errorf("%s: %q", document, got)
		}
		r.writes(sb, "", "/workspace /tmp", "/usr/share")
		if strings.Contains(document, "write") {
			r.nobodyIsRoot(sb)
			continue
		}
		if got, ok := r.says(sb, "root", look); !ok || got != "0\n0\nprograms" {
			t.Errorf("root: %q", got)
		}
		r.writes(sb, "root", "/workspace /etc", "/usr/share")
	}
}

// secrets is a workspace with a secret in each file that denied names, and links to them.
func secrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		".env", "sub/.ENV", "keys/id_one", ".netrc-of-me", "cloud/credentials", "real/secret", "real/deep/secret", "plain/canary-here",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("canary-58"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		".netrc": ".netrc-of-me", "dotenv": ".env", ".aws": "cloud", "alias": "real", "sub/up": "..", "plain/again": "../alias",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// denied are globs of secrets, of which the last two name the target of a link.
const denied = `deny: ["**/.env", "**/keys/**", "**/.netrc", "**/.aws/**", "**/alias/secret", "/workspace/plain/again/deep/**", "**/later.key"]`

// P4: denied files of a workspace do not exist inside, by any path.
func TestWhatIsDenied(t *testing.T) {
	r := newRig(t)
	ways := []string{
		".env", "./sub/../.env", "sub/.ENV", "sub/up/.env", "sub/up/sub/up/.env", "dotenv", "/proc/self/root/workspace/.env", "keys/id_one", "keys/../keys/id_one",
		".netrc", ".netrc-of-me", ".aws/credentials", "cloud/credentials", "alias/secret", "real/secret", "plain/again/deep/secret", "real/deep/secret",
	}
	ws := secrets(t)
	for _, mode := range []string{"overlay", "copy"} {
		free := r.on("level: minimal\nfilesystem: {workspace: {mode: "+mode+"}}\n", crannog.Workspace(ws))
		sb := r.on("level: minimal\nfilesystem: {workspace: {mode: "+mode+"}, "+denied+"}\n", crannog.Workspace(ws))
		for _, way := range ways {
			line := "cd /workspace && cat " + way
			if got, ok := r.says(free, "", line); !ok || got != "canary-58" {
				t.Errorf("%s: control of %s: %q", mode, way, got)
			}
			for _, user := range []string{"", "root"} {
				if got, _ := r.says(sb, user, line); got != "" {
					t.Errorf("%s: %q reads %s: %q", mode, user, way, got)
				}
			}
		}
		if got := r.sh(sb, "cat /workspace/plain/canary-here"); got != "canary-58" {
			t.Errorf("%s: what is not denied: %q", mode, got)
		}
		// A missing file may be created inside, and belongs to the sandbox.
		if got := r.sh(sb, "cd /workspace && echo own > later.key && cat later.key"); got != "own" {
			t.Errorf("%s: what is made inside: %q", mode, got)
		}
	}
}

// Denied and protected files may appear in the host's directory after the check: a copy shows none
// of them.
func TestWhatComesLater(t *testing.T) {
	r := newRig(t)
	ws := secrets(t)
	sb := r.on("level: minimal\nfilesystem: {workspace: {mode: copy}, "+denied+"}\n", crannog.Workspace(ws))
	for _, name := range []string{"later.key", "harmless"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte("canary-59"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := r.says(sb, "", "cat /workspace/later.key /workspace/harmless"); got != "" {
		t.Errorf("it shows %q", got)
	}
	next := r.on("level: minimal\nfilesystem: {workspace: {mode: copy}, "+denied+"}\n", crannog.Workspace(ws))
	if got, _ := r.says(next, "", "cat /workspace/later.key /workspace/harmless"); got != "canary-59" {
		t.Errorf("control: a new one shows %q", got)
	}
}

// P4: files that a policy makes read-only can be read and not changed. A file that it only protects
// can be changed in the sandbox's own copy.
func TestWhatIsReadOnly(t *testing.T) {
	r := newRig(t)
	ws := tree(t)
	if err := os.WriteFile(filepath.Join(ws, ".envrc"), []byte("use nix"), 0o644); err != nil {
		t.Fatal(err)
	}
	attempts := []string{
		"echo x >> .envrc", "rm -f .envrc", "mv .envrc away", "ln -sf main.go .envrc", "cp main.go .envrc", "echo x > sub/../.envrc",
		"echo x >> .git/hooks/pre-commit", "echo x > .git/hooks/new", "rm -rf .git/hooks", "mv .git/hooks .git/gone", "chmod 777 .git/hooks/pre-commit",
	}
	const globs = "['**/.envrc', '**/.git/hooks/**']}\n"
	own := r.on("level: minimal\nfilesystem: {protect: "+globs, crannog.Workspace(ws))
	if got := r.sh(own, "cd /workspace && echo x >> .envrc && mv .envrc away && echo y > .git/hooks/new && cat away .git/hooks/new"); got != "use nixx\ny" {
		t.Errorf("a copy that is protected: %q", got)
	}
	// A hidden file in a read-only directory is hidden.
	deep := r.on("level: minimal\nfilesystem: {read_only: ['**/.git/**'], deny: ['**/pre-commit']}\n", crannog.Workspace(ws))
	if got, _ := r.says(deep, "root", "cat /workspace/.git/hooks/pre-commit; echo x > /workspace/.git/hooks/pre-commit; echo x > /workspace/.git/new; ls -A /workspace/.git"); got != "hooks" {
		t.Errorf("hidden in a read-only directory: %q", got)
	}
	const document = "level: minimal\nfilesystem: {read_only: " + globs
	for _, attempt := range attempts {
		free := "rm -rf /tmp/w && cp -r /workspace /tmp/w && cd /tmp/w && mkdir -p sub && " + attempt
		sb := r.on(document, crannog.Workspace(ws))
		for _, user := range []string{"", "root"} {
			if _, ok := r.says(sb, user, free); !ok {
				t.Errorf("control of %s, as %q", attempt, user)
			}
			if _, ok := r.says(sb, user, "rm -rf /tmp/w; cd /workspace && mkdir -p sub && "+attempt); ok {
				t.Errorf("%q: %s", user, attempt)
			}
		}
		if got := r.sh(sb, "cd /workspace && cat .envrc .git/hooks/pre-commit && ls .git/hooks"); got != "use nix#!/bin/shpre-commit" {
			t.Errorf("%s left %q", attempt, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A link, or its target, could be replaced: the start is refused.
	for name, make := range map[string]func(dir string) error{
		"a link":         func(dir string) error { return os.Symlink("main.go", filepath.Join(dir, ".envrc")) },
		"a directory is": func(dir string) error { return os.Symlink("..", filepath.Join(dir, ".git", "hooks")) },
		"a directory above": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "real", "hooks"), 0o755), os.RemoveAll(filepath.Join(dir, ".git")),
				os.WriteFile(filepath.Join(dir, "real", "hooks", "pre-commit"), nil, 0o644), os.Symlink("real", filepath.Join(dir, ".git")))
		},
	} {
		dir := tree(t)
		if name == "a directory is" {
			if err := os.RemoveAll(filepath.Join(dir, ".git", "hooks")); err != nil {
				t.Fatal(err)
			}
		}
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		_, err := r.create(crannog.Policy("policy: v1\nname: task\n"+document), crannog.Workspace(dir))
		var e *crannog.Error
		if !errors.As(err, &e) || e.Code != "policy_protects_link" {
			t.Errorf("%s: %v", name, err)
		}
		// F2: with protected paths it starts: the export follows the link.
		sb := r.on("level: minimal\nfilesystem: {protect: "+globs, crannog.Workspace(dir))
		if err := sb.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
