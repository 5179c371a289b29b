package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// P73: a daemon with other mounts than this process would show the empty directory below the
// volume, whose files have no quota. The volume is refused, and nothing of the sandbox is left.
func TestVolumeOfOtherMountsIsRefused(t *testing.T) {
	d, image := daemon(t)
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("volume", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	state := t.TempDir()
	e := opener(d, "")(t, state)
	err := e.Create(t.Context(), engine.Spec{ID: "volume1", Image: image, Volumes: []engine.Volume{{Source: dir, Target: "/mnt/data"}}})
	if fault.CodeOf(err) != engine.CodeVolumes {
		t.Errorf("create: got %v, want %s", err, engine.CodeVolumes)
	}
	counts, err := d.CountObjects(context.Background(), state)
	for kind, n := range counts {
		if n != 0 {
			t.Errorf("%d %s are left", n, kind)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A daemon in the mount namespace of the host, as most are, shows volumes with their quota.
func TestVolumesWithHostMounts(t *testing.T) {
	if !hosttest.Full() {
		return // it starts another daemon: make test-docker
	}
	hosttest.Need(t, hosttest.Root, dockertest.Requirement, hosttest.Python, hosttest.Bash)
	dir, err := os.MkdirTemp("/var/tmp", "dkr")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dockertest.Start(dir, dockertest.Options{HostMounts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	oci, err := d.Import(t.Context(), "test:1")
	if err != nil {
		t.Fatal(err)
	}
	runtime := ""
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		runtime = "runc" // crun refuses a host with both versions of control groups
	}
	enginetest.Run(t, enginetest.Config{
		Open: opener(d, runtime), Image: engine.Image{OCI: &oci, Guest: guestPath}, Residue: residue(d), Cycles: 3, LosesOnlyPrograms: true,
		Only: []string{"cover/volumes-are-shared-with-the-host", "cover/volumes-are-bounded-by-their-file-system", "leaks/"},
	})
}
