package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// volumeDir returns an empty directory of the sandbox's user for a volume.
func volumeDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	giveToUser(t, dir)
	return dir
}

// giveToUser makes a directory belong to the sandbox's user. An engine of another user than root
// shows the files of its own user as those of the sandbox's user.
func giveToUser(t testing.TB, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(dir, engine.UserID, engine.UserID); err != nil {
		t.Fatal(err)
	}
}

// withVolume adds a volume to a specification.
func withVolume(dir string, readOnly bool) func(*engine.Spec) {
	return func(s *engine.Spec) {
		s.Volumes = []engine.Volume{{Source: dir, Target: "/mnt/data", ReadOnly: readOnly}}
	}
}

// volumesAreShared checks that files which programs write to a volume are on the host at once and
// outlive the sandbox, that other sandboxes see and change them, and that a read-only volume cannot
// be changed.
func volumesAreShared(t testing.TB, c *Config) {
	dir := volumeDir(t)
	if err := os.WriteFile(filepath.Join(dir, "seed"), []byte("seed"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := c.Open(t, t.TempDir())
	writer, reader, other := c.start(t, e, withVolume(dir, false)), c.start(t, e, withVolume(dir, true)), c.start(t, e, withVolume(dir, false))
	writer.want(t, "cd /mnt/data && cat seed && echo kept > f && mkdir d && mv f d/ && chmod 640 d/f && ln -s /etc/hostname link && rm seed 2>/dev/null; ls", "seedd\nlink")
	reader.want(t, "cat /mnt/data/d/f", "kept")
	users := []string{"user"}
	if !e.Info().NoRoot {
		users = append(users, "root")
	}
	for _, user := range users {
		for _, line := range []string{"echo x > /mnt/data/d/f", "mkdir /mnt/data/x", "rm -r /mnt/data/d", "mount -o remount,rw /mnt/data"} {
			if r := reader.shAs(t, user, line); r.code == 0 {
				t.Errorf("a read-only volume was changed by %s with %q: %+v", user, line, r)
			}
		}
	}
	other.want(t, "echo more >> /mnt/data/d/f; touch /mnt/data/new", "")
	writer.want(t, "cat /mnt/data/d/f; rm /mnt/data/new", "kept\nmore")
	reader.want(t, "ls /mnt/data", "d\nlink")
	if err := e.Remove(t.Context(), writer.id); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "d/f")); err != nil || string(data) != "kept\nmore\n" {
		t.Errorf("the file on the host contains %q, %v; want the text of the sandboxes", data, err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "d"), &stat); err != nil {
		t.Fatal(err)
	}
	want := uint32(engine.UserID)
	if os.Geteuid() != 0 {
		want = uint32(os.Geteuid())
	}
	if stat.Uid != want {
		t.Errorf("a directory of the sandbox's user belongs to %d on the host, want %d", stat.Uid, want)
	}
}

// volumesAreBounded checks that the limits of a volume's file system hold inside, also for root and
// for two sandboxes together, and that nothing of the volume stays mounted after the sandboxes.
func volumesAreBounded(t testing.TB, c *Config) {
	const size, files = 4 << 20, 40
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755,uid=%d,gid=%d", size, files, engine.UserID, engine.UserID)
	if err := unix.Mount("volume", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The unmount fails if anything of the sandboxes still uses the file system on this mount.
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount the volume: %v", err)
		}
	})
	e := c.Open(t, t.TempDir())
	first, second := c.start(t, e, withVolume(dir, false)), c.start(t, e, withVolume(dir, false))
	full := "No space left on device"
	first.want(t, "head -c 3m /dev/zero > /mnt/data/first && echo fits", "fits")
	for _, user := range []string{"user", "root"} {
		if user == "root" && e.Info().NoRoot {
			continue
		}
		if r := second.shAs(t, user, "head -c 3m /dev/zero > /mnt/data/second"); r.code == 0 || !strings.Contains(r.stderr, full) {
			t.Errorf("%s wrote more than the volume's size: %+v", user, r)
		}
		second.want(t, "rm -f /mnt/data/second", "")
	}
	if r := second.sh(t, "cd /mnt/data && i=0; while [ $i -lt 100 ] && touch n$i; do i=$((i+1)); done; [ $i -lt 100 ]"); r.code != 0 || !strings.Contains(r.stderr, full) {
		t.Errorf("more files than the volume has room for: %+v", r)
	}
	first.want(t, "rm /mnt/data/n* /mnt/data/first && head -c 3m /dev/zero > /mnt/data/again && echo fits", "fits")
	for _, b := range []*testSandbox{first, second} {
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if n := strings.Count(string(mounts), " - tmpfs volume "); err != nil || n != 1 {
		t.Errorf("the volume is mounted %d times on the host, %v; want only the mount of this test", n, err)
	}
}

// volumesAreNotSaved checks that a restored sandbox has the present files of a volume, also those
// that its programs have open.
func volumesAreNotSaved(t testing.TB, c *Config) {
	dir := volumeDir(t)
	e := c.Open(t, t.TempDir())
	b := c.start(t, e, withVolume(dir, false))
	b.want(t, "echo before > /mnt/data/f; setsid sh -c 'exec 3</mnt/data/f; mkfifo /tmp/go; read x </tmp/go; cat <&3 >/tmp/out' >/dev/null 2>&1 & while ! test -p /tmp/go; do sleep 0.02; done; echo up", "up")
	saved := t.TempDir()
	if err := e.(engine.Checkpointer).Checkpoint(t.Context(), b.id, saved); err != nil {
		t.Fatal(err)
	}
	b.want(t, "echo after > /mnt/data/f; echo more > /mnt/data/g", "")
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	c.copyOf(t, e, saved, withVolume(dir, false)).want(t, "cat /mnt/data/f /mnt/data/g; echo x >/tmp/go; while ! test -s /tmp/out; do sleep 0.02; done; cat /tmp/out", "after\nmore\nafter")
}
