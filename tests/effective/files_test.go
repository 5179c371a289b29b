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

// createUnder creates a sandbox under a policy about files.
func (r *rig) createUnder(document string, opts ...crannog.CreateOption) *crannog.Sandbox {
	r.t.Helper()
	return r.must(append(opts, crannog.Policy("policy: v1\nname: task\n"+document))...)
}

// exec returns what a shell line prints, and whether it succeeds.
func (r *rig) exec(sb *crannog.Sandbox, user, line string) (string, bool) {
	r.t.Helper()
	res, err := sb.Exec(r.t.Context(), api.Exec{Cmd: []string{"sh", "-c", line}, User: user, TimeoutSeconds: 1200})
	if err != nil {
		r.t.Fatalf("run %s: %v", line, err)
	}
	return strings.TrimSpace(res.Stdout), res.ExitCode == 0
}

// requireWritable checks that a user can create a file in exactly these directories.
func (r *rig) requireWritable(sb *crannog.Sandbox, user, writable, denied string) {
	r.t.Helper()
	for dir := range strings.FieldsSeq(writable) {
		if _, ok := r.exec(sb, user, fmt.Sprintf("echo x > %s/probe && rm %s/probe", dir, dir)); !ok {
			r.t.Errorf("%q cannot write %s", user, dir)
		}
	}
	for dir := range strings.FieldsSeq(denied) {
		if out, ok := r.exec(sb, user, fmt.Sprintf("echo x > %s/probe; test -e %s/probe", dir, dir)); ok {
			r.t.Errorf("%q can write %s: %s", user, dir, out)
		}
	}
}

// requireNoRoot checks that no command can run as root.
func (r *rig) requireNoRoot(sb *crannog.Sandbox) {
	r.t.Helper()
	_, err := sb.Exec(r.t.Context(), api.Exec{Cmd: []string{"true"}, User: "root"})
	if !errors.Is(err, crannog.ErrInvalid) && !errors.Is(err, crannog.ErrUnauthenticated) && !errors.Is(err, crannog.ErrNotFound) {
		r.t.Errorf("a command as root: got %v, want it refused", err)
	}
}

// P4: no user can write what a policy does not make writable.
func TestPolicyLimitsWrites(t *testing.T) {
	r := newRig(t)
	const all = "/workspace /tmp /var/tmp /home/user"
	unrestricted := r.createUnder("")
	r.requireWritable(unrestricted, "", all, "/usr /etc /")
	r.requireWritable(unrestricted, "root", all+" /usr /etc /", "")

	const some = "filesystem: {write: [/workspace, /tmp]}\n"
	sb := r.createUnder(some)
	r.requireWritable(sb, "", "/workspace /tmp /tmp/../workspace", "/var/tmp /home/user /usr /usr/local /etc / /tmp/../usr")
	r.requireNoRoot(sb)

	// The same holds with a workspace, whose files belong to the user (F11).
	ws := workspaceTree(t)
	shown := r.createUnder("", crannog.Workspace(ws))
	r.requireWritable(shown, "root", "/workspace /usr", "")
	sb = r.createUnder(some, crannog.Workspace(ws))
	r.requireWritable(sb, "", "/workspace /workspace/.git/hooks /tmp", "/var/tmp /home/user /usr /usr/local /etc /")
	r.requireNoRoot(sb)
	sb = r.createUnder("filesystem: {write: [/tmp]}\n", crannog.Workspace(ws))
	r.requireWritable(sb, "", "/tmp", "/workspace /workspace/.git /var/tmp /home/user /usr /etc /")
	if got := r.sh(sb, "cat /workspace/main.go"); got != "package main" {
		t.Errorf("read /workspace/main.go: got %q", got)
	}
	sb = r.createUnder("filesystem: {workspace: {writable: false}}\n", crannog.Workspace(ws))
	r.requireWritable(sb, "", "/tmp /home/user", "/workspace /workspace/.git")
	r.requireWritable(sb, "root", "/tmp /usr", "/workspace /workspace/.git")

	// A directory below the user's own one cannot be writable alone.
	for _, path := range []string{"/workspace/out", "/home/user/x/y"} {
		_, err := r.create(crannog.Policy("policy: v1\nname: task\nfilesystem: {write: [/tmp, " + path + "]}\n"))
		var e *crannog.Error
		if !errors.As(err, &e) || e.Code != "policy_writes_part" {
			t.Errorf("a policy that makes only %s writable: got %v, want policy_writes_part", path, err)
		}
	}
	// A path with .. is invalid.
	for _, list := range []string{"[/workspace/../etc]", "[workspace]", "[/tmp/.]"} {
		if _, err := r.create(crannog.Policy("policy: v1\nname: task\nfilesystem: {write: " + list + "}\n")); !errors.Is(err, crannog.ErrInvalid) {
			t.Errorf("a policy with the invalid paths %s: got %v, want it refused", list, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(ws, "main.go")); err != nil || string(data) != "package main" {
		t.Errorf("the host's file: %q, %v", data, err)
	}
}

// P4: paths that a policy does not make readable are empty.
func TestPolicyLimitsReads(t *testing.T) {
	r := newRig(t)
	const look = "ls -A /usr/share | wc -l; ls -A /usr/share/../share | wc -l; test -d /usr/bin && echo programs"
	unrestricted := r.createUnder("")
	if got := r.sh(unrestricted, look); strings.HasPrefix(got, "0") || !strings.HasSuffix(got, "programs") {
		t.Fatalf("control: %q", got)
	}
	const read = "read: [/usr/bin, /usr/sbin, /usr/lib, /usr/lib64, /bin, /sbin, /lib, /lib64, /etc, /proc/self]"
	for _, document := range []string{
		"filesystem: {" + read + "}\n",
		"filesystem: {" + read + ", write: [/workspace, /tmp]}\n",
	} {
		sb := r.createUnder(document)
		if got := r.sh(sb, look); got != "0\n0\nprograms" {
			t.Errorf("a sandbox under %s: got %q", document, got)
		}
		r.requireWritable(sb, "", "/workspace /tmp", "/usr/share")
		if strings.Contains(document, "write") {
			r.requireNoRoot(sb)
			continue
		}
		if got, ok := r.exec(sb, "root", look); !ok || got != "0\n0\nprograms" {
			t.Errorf("root: %q", got)
		}
		r.requireWritable(sb, "root", "/workspace /etc", "/usr/share")
	}
}

// secretsTree creates a workspace with secrets in files that deniedGlobs names, and links to them.
func secretsTree(t *testing.T) string {
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

// deniedGlobs are globs of secrets. Some of them name a file through a link.
const deniedGlobs = `deny: ["**/.env", "**/keys/**", "**/.netrc", "**/.aws/**", "**/alias/secret", "/workspace/plain/again/deep/**", "**/later.key"]`

// P4: denied files of a workspace do not exist inside, by any path.
func TestDeniedFilesDoNotExist(t *testing.T) {
	r := newRig(t)
	paths := []string{
		".env", "./sub/../.env", "sub/.ENV", "sub/up/.env", "sub/up/sub/up/.env", "dotenv", "/proc/self/root/workspace/.env", "keys/id_one", "keys/../keys/id_one",
		".netrc", ".netrc-of-me", ".aws/credentials", "cloud/credentials", "alias/secret", "real/secret", "plain/again/deep/secret", "real/deep/secret",
	}
	ws := secretsTree(t)
	for _, mode := range []string{"overlay", "copy"} {
		unrestricted := r.createUnder("level: minimal\nfilesystem: {workspace: {mode: "+mode+"}}\n", crannog.Workspace(ws))
		sb := r.createUnder("level: minimal\nfilesystem: {workspace: {mode: "+mode+"}, "+deniedGlobs+"}\n", crannog.Workspace(ws))
		for _, path := range paths {
			line := "cd /workspace && cat " + path
			if got, ok := r.exec(unrestricted, "", line); !ok || got != "canary-58" {
				t.Errorf("%s: control of %s: %q", mode, path, got)
			}
			for _, user := range []string{"", "root"} {
				if got, _ := r.exec(sb, user, line); got != "" {
					t.Errorf("%s: %q reads %s: %q", mode, user, path, got)
				}
			}
		}
		if got := r.sh(sb, "cat /workspace/plain/canary-here"); got != "canary-58" {
			t.Errorf("%s: a file that is not denied: got %q", mode, got)
		}
		// A missing file may be created inside, and belongs to the sandbox.
		if got := r.sh(sb, "cd /workspace && echo inside > later.key && cat later.key"); got != "inside" {
			t.Errorf("%s: a file that is created inside: got %q", mode, got)
		}
	}
}

// TestCopyHidesLaterFiles checks that a copy of a workspace shows no file that is created in the
// host's directory after the check.
func TestCopyHidesLaterFiles(t *testing.T) {
	r := newRig(t)
	ws := secretsTree(t)
	sb := r.createUnder("level: minimal\nfilesystem: {workspace: {mode: copy}, "+deniedGlobs+"}\n", crannog.Workspace(ws))
	for _, name := range []string{"later.key", "harmless"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte("canary-59"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := r.exec(sb, "", "cat /workspace/later.key /workspace/harmless"); got != "" {
		t.Errorf("the sandbox shows %q", got)
	}
	next := r.createUnder("level: minimal\nfilesystem: {workspace: {mode: copy}, "+deniedGlobs+"}\n", crannog.Workspace(ws))
	if got, _ := r.exec(next, "", "cat /workspace/later.key /workspace/harmless"); got != "canary-59" {
		t.Errorf("control: a new sandbox shows %q", got)
	}
}

// P4: files that a policy makes read-only can be read but not changed. A file that it only protects
// can be changed in the sandbox's own copy.
func TestReadOnlyFilesDoNotChange(t *testing.T) {
	r := newRig(t)
	ws := workspaceTree(t)
	if err := os.WriteFile(filepath.Join(ws, ".envrc"), []byte("use nix"), 0o644); err != nil {
		t.Fatal(err)
	}
	attempts := []string{
		"echo x >> .envrc", "rm -f .envrc", "mv .envrc away", "ln -sf main.go .envrc", "cp main.go .envrc", "echo x > sub/../.envrc",
		"echo x >> .git/hooks/pre-commit", "echo x > .git/hooks/new", "rm -rf .git/hooks", "mv .git/hooks .git/gone", "chmod 777 .git/hooks/pre-commit",
	}
	const globs = "['**/.envrc', '**/.git/hooks/**']}\n"
	protected := r.createUnder("level: minimal\nfilesystem: {protect: "+globs, crannog.Workspace(ws))
	if got := r.sh(protected, "cd /workspace && echo x >> .envrc && mv .envrc away && echo y > .git/hooks/new && cat away .git/hooks/new"); got != "use nixx\ny" {
		t.Errorf("the copy of a protected file: got %q", got)
	}
	// A hidden file in a read-only directory is hidden.
	hidden := r.createUnder("level: minimal\nfilesystem: {read_only: ['**/.git/**'], deny: ['**/pre-commit']}\n", crannog.Workspace(ws))
	if got, _ := r.exec(hidden, "root", "cat /workspace/.git/hooks/pre-commit; echo x > /workspace/.git/hooks/pre-commit; echo x > /workspace/.git/new; ls -A /workspace/.git"); got != "hooks" {
		t.Errorf("a hidden file in a read-only directory: got %q", got)
	}
	const document = "level: minimal\nfilesystem: {read_only: " + globs
	for _, attempt := range attempts {
		control := "rm -rf /tmp/w && cp -r /workspace /tmp/w && cd /tmp/w && mkdir -p sub && " + attempt
		sb := r.createUnder(document, crannog.Workspace(ws))
		for _, user := range []string{"", "root"} {
			if _, ok := r.exec(sb, user, control); !ok {
				t.Errorf("control of %s, as %q", attempt, user)
			}
			if _, ok := r.exec(sb, user, "rm -rf /tmp/w; cd /workspace && mkdir -p sub && "+attempt); ok {
				t.Errorf("user %q succeeded with %s", user, attempt)
			}
		}
		if got := r.sh(sb, "cd /workspace && cat .envrc .git/hooks/pre-commit && ls .git/hooks"); got != "use nix#!/bin/shpre-commit" {
			t.Errorf("%s left %q", attempt, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A link or its target could be replaced, so the start is refused.
	for name, addLink := range map[string]func(dir string) error{
		"a link":             func(dir string) error { return os.Symlink("main.go", filepath.Join(dir, ".envrc")) },
		"a linked directory": func(dir string) error { return os.Symlink("..", filepath.Join(dir, ".git", "hooks")) },
		"a linked parent directory": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "real", "hooks"), 0o755), os.RemoveAll(filepath.Join(dir, ".git")),
				os.WriteFile(filepath.Join(dir, "real", "hooks", "pre-commit"), nil, 0o644), os.Symlink("real", filepath.Join(dir, ".git")))
		},
	} {
		dir := workspaceTree(t)
		if name == "a linked directory" {
			if err := os.RemoveAll(filepath.Join(dir, ".git", "hooks")); err != nil {
				t.Fatal(err)
			}
		}
		if err := addLink(dir); err != nil {
			t.Fatal(err)
		}
		_, err := r.create(crannog.Policy("policy: v1\nname: task\n"+document), crannog.Workspace(dir))
		var e *crannog.Error
		if !errors.As(err, &e) || e.Code != "policy_protects_link" {
			t.Errorf("%s: got %v, want policy_protects_link", name, err)
		}
		// F2: with only protected paths it starts, because the export follows the link.
		sb := r.createUnder("level: minimal\nfilesystem: {protect: "+globs, crannog.Workspace(dir))
		if err := sb.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
