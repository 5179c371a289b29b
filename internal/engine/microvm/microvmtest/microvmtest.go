// Package microvmtest owns helpers for tests of the engine microvm: an image of this host's
// programs, the kernel that tests/unified/kernel.sh fetches, and a count of the engine's resources
// on this host.
package microvmtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/engine/microvm"
	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// GuestPath is the path of the guest's program in a sandbox.
const GuestPath = "/.crannog/crannog-guest"

// Kernel returns the directory of the kernel in this repository.
func Kernel() string {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, "tests/unified/kernel")
}

// Ability requires a kernel with its modules.
var Ability = hosttest.Requirement{Name: "kernel for virtual machines (tests/unified/kernel.sh fetches it)", Has: func() bool {
	_, err := os.Stat(filepath.Join(Kernel(), "complete"))
	return err == nil
}}

// Image is an unpacked image of programs of this host. It implements microvm.Images.
type Image struct{ dir, guest string }

// Unpack creates an image in a directory. Its guest is a program of this host.
func Unpack(dir, guest string) (*Image, error) {
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(dockertest.WriteImage(writer)) }()
	cmd := exec.Command("tar", "-x", "--no-same-owner", "-C", tree) //nolint:noctx // TestMain has no context
	cmd.Stdin = reader
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(err, errors.New(string(out)))
	}
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{
		{"tmp", os.ModeSticky | 0o777}, {"var/tmp", os.ModeSticky | 0o777}, {"run", 0o755}, {"root", 0o700}, {"home/user", 0o755},
		{"workspace", 0o755}, {"proc", 0o755}, {"dev", 0o755}, {"sys", 0o755}, {".crannog", 0o755}, {"etc", 0o755}, {"usr", 0o755},
	} {
		path := filepath.Join(tree, d.name)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, d.mode)); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n", "etc/group": "root:x:0:\nuser:x:1000:\n",
		"etc/hostname": "image\n", "etc/machine-id": "",
	} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	owners, err := fileowners.Table{"/home/user": {UID: engine.UserID, GID: engine.UserID}}.Text()
	if err != nil {
		return nil, err
	}
	return &Image{dir, guest}, os.WriteFile(filepath.Join(dir, "owners"), owners, 0o644)
}

// Reopen returns the image that Unpack has created in a directory.
func Reopen(dir, guest string) *Image { return &Image{dir, guest} }

// Guest returns the path of the guest on this host.
func (i *Image) Guest() string { return i.guest }

// ImageView implements microvm.Images.
func (i *Image) ImageView(context.Context, engine.OCI) (engine.HostView, error) {
	return engine.HostView{
		Dir: filepath.Join(i.dir, "tree"), Owners: filepath.Join(i.dir, "owners"), Binds: []engine.Bind{{Source: i.guest, Target: GuestPath}},
	}, nil
}

// OCI returns the image in the form in which a specification names it.
func (i *Image) OCI() engine.Image {
	return engine.Image{OCI: &engine.OCI{Ref: "test:1", Digest: "sha256:" + strings.Repeat("7", 64)}, Guest: GuestPath}
}

// Residue counts the engine's resources for a state directory: keepers, machines and control
// groups.
func Residue(t testing.TB, dir string) map[string]int {
	t.Helper()
	keepers, machines := Processes(t, dir)
	groups := 0
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/microvm-*", "/sys/fs/cgroup/*/crannog/microvm-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range found {
			if _, err := os.Stat(filepath.Join(dir, microvm.Name, strings.TrimPrefix(filepath.Base(group), microvm.Name+"-"))); err == nil {
				groups++
			}
		}
	}
	return map[string]int{"keepers": len(keepers), "machines": len(machines), "groups": groups}
}

// Processes lists the keepers and the machines of the sandboxes below a state directory.
func Processes(t testing.TB, dir string) (keepers, machines []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	tag := "\x00" + microvm.Tag(filepath.Join(dir, microvm.Name)) + "-"
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), tag) {
			continue
		}
		if strings.Contains(string(data), "\x00-chardev\x00") {
			machines = append(machines, filepath.Base(filepath.Dir(path)))
		} else {
			keepers = append(keepers, filepath.Base(filepath.Dir(path)))
		}
	}
	return keepers, machines
}

// Machine returns the PID of a sandbox's machine.
func Machine(t testing.TB, dir, id string) int {
	t.Helper()
	var p struct{ PID int }
	data, err := os.ReadFile(filepath.Join(dir, microvm.Name, id, "machine"))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.PID
}
