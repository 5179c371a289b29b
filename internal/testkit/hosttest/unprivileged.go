package hosttest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Unprivileged is the ID of a user and of a group that own nothing on the host.
const Unprivileged = 61234

// RerunUnprivileged runs one test of this test binary again as a user without any privileges.
func RerunUnprivileged(t *testing.T, name string) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "crannog-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, Unprivileged, Unprivileged); err != nil {
		t.Fatal(err)
	}
	// The test binary is copied, because its directory is open only to root.
	program := filepath.Join(dir, "rootless.test")
	copyProgram(t, program)
	cmd := exec.CommandContext(t.Context(), program, "-test.run", name, "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "CRANNOG_TEST_HOST=" + os.Getenv("CRANNOG_TEST_HOST"),
		"CRANNOG_TEST_FULL=" + os.Getenv("CRANNOG_TEST_FULL")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Unprivileged, Gid: Unprivileged}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("as user %d: %v", Unprivileged, err)
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, self); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
