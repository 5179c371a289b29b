package docker

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden file contains each right, mount and limit of a sandbox, so that a reviewer sees every
// change of the request.
func TestRequestEqualsGoldenFile(t *testing.T) {
	spec := engine.Spec{
		ID: "box1", Hostname: "box", Workspace: "/home/me/project", Volumes: []engine.Volume{{Source: "/state/volumes/v1/mnt", Target: "/mnt/data"}}, Image: engine.Image{OCI: &engine.OCI{}, Guest: "/.crannog/crannog-guest"},
		Boot: engine.Boot{Config: []byte(`{"access_token":"canary-token"}`)},
	}
	l := layout{
		owner: strings.Repeat("ab", 16), image: "sha256:0123", runtime: "crun", spec: spec, volumes: planVolumes(strings.Repeat("ab", 16), spec),
		protected: []string{"/workspace/.git/hooks"},
	}
	request := l.request()
	// The seccomp profile is in a separate file.
	for i, option := range request.HostConfig.SecurityOpt {
		request.HostConfig.SecurityOpt[i] = strings.Replace(option, seccompProfile, "(seccomp.json)", 1)
	}
	got, err := json.MarshalIndent(map[string]any{"name": request.Name, "config": request.Config, "host": request.HostConfig}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got, []byte("canary-token")) {
		t.Error("the request contains the sandbox's tokens, which docker inspect would show")
	}
	path := filepath.Join("testdata", "request.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(want), got) {
		t.Errorf("the request is not %s (-update writes it):\n%s", path, got)
	}
}

// The profile lists the allowed calls by name. It allows none of the calls that attacks on kernels
// have used.
func TestSeccompProfileAllowsNoDangerousCalls(t *testing.T) {
	var profile struct {
		DefaultAction string
		Syscalls      []struct {
			Names  []string
			Action string
			Args   []any
		}
	}
	if err := json.Unmarshal([]byte(seccompProfile), &profile); err != nil {
		t.Fatal(err)
	}
	if profile.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("the default action is %s, want SCMP_ACT_ERRNO", profile.DefaultAction)
	}
	allowed := map[string]bool{}
	for _, s := range profile.Syscalls {
		if s.Action == "SCMP_ACT_ALLOW" && len(s.Args) == 0 {
			for _, name := range s.Names {
				allowed[name] = true
			}
		}
	}
	for _, name := range []string{"read", "execve", "futex", "openat", "mmap", "connect"} {
		if !allowed[name] {
			t.Errorf("control: %s is not allowed", name)
		}
	}
	for name := range strings.FieldsSeq(`mount umount2 unshare setns clone clone3 pivot_root chroot bpf perf_event_open userfaultfd io_uring_setup
		io_uring_enter keyctl add_key request_key init_module finit_module delete_module kexec_load open_by_handle_at socket ptrace_scope
		iopl ioperm modify_ldt personality mknod mknodat swapon reboot settimeofday clock_settime acct quotactl fsopen open_tree move_mount`) {
		if allowed[name] {
			t.Errorf("%s is allowed with any arguments", name)
		}
	}
}

// A hidden path is empty, even if it is reached through a link. A link out of the tree hides
// nothing.
func TestHiddenPathsAreNotCopied(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"keep", "secrets/key"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": "secrets", "absolute": "/workspace/keep", "out": "../../etc/passwd", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	hide := []string{"/workspace/link", "/workspace/absolute", "/workspace/out", "/workspace/loop", "/workspace/none", "/workspace/keep/below", "/etc/passwd"}
	c, err := resolveCover(root, workspaceDir, engine.Spec{Hide: hide})
	if err != nil {
		t.Fatal(err)
	}
	var empty []string
	for name := range c.empty {
		empty = append(empty, name)
	}
	slices.Sort(empty)
	if !slices.Equal(empty, []string{"keep", "secrets"}) {
		t.Errorf("the hidden paths are %v, want keep and secrets", empty)
	}
	var complete, withoutHidden, names bytes.Buffer
	if err := writeTar(&complete, root, workspaceDir, cover{}, &names); err != nil || strings.Count(complete.String(), "canary") != 2 {
		t.Fatalf("control: the tar without hidden paths has %d secrets, %v; want 2", strings.Count(complete.String(), "canary"), err)
	}
	if err := writeTar(&withoutHidden, root, workspaceDir, c, &names); err != nil || strings.Contains(withoutHidden.String(), "canary") {
		t.Errorf("a hidden file is in the tar, %v", err)
	}
	if list := names.String(); !strings.Contains(list, "workspace/keep\x00") || strings.Count(list, "workspace/secrets/key\x00") != 1 {
		t.Errorf("the names of the copied files are %q; want all, and those of a hidden directory only from the control", list)
	}
}
