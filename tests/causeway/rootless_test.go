package causeway_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/hosttest"
)

// nobodySpecial is a user number that no passwd names.
const nobodySpecial = 61236

// P14, P17: a user who owns nothing on this machine gets the same walls: the
// same tests, run by one.
func TestRootless(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, curl, openssl)
	dir, err := os.MkdirTemp("/var/tmp", "cw") // t.TempDir is below a directory of root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "tests")
	if err := copyProgram(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobodySpecial, nobodySpecial); err != nil {
		t.Fatal(err)
	}
	// The rows of the way out, of secrets and of approvals.
	cmd := exec.CommandContext(t.Context(), path, "-rootless", "-test.v", "-test.timeout=25m", "-test.run", "^Test[NSA][0-9]+[A-Z]")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "CRANNOG_TEST_HOST=must"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodySpecial, Gid: nobodySpecial}}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if n := strings.Count(text, "--- PASS: Test"); n < 42 || contains(text, "--- SKIP") {
		t.Errorf("%d tests passed\n%s", n, text)
	}
}

func copyProgram(path string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, self); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
