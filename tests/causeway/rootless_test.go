package causeway_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// unprivilegedUID is a user ID that no passwd lists.
const unprivilegedUID = 61236

// The tests about the network, secrets and approvals that run again without root. allTests take as
// long as they do for root; the gateway's protocols use the same code for every user. userTests are
// those in which the host's kernel has a part: the attachment and devices beside it, the gateway's
// process, other sandboxes, and readable secrets. Both include kinds of attachments, whose devices
// belong to a user namespace then: all, or only the TAP device.
const (
	allTests  = "^Test([NSA][0-9]+[A-Z]|AttachmentKinds)"
	userTests = "^Test(N1|N17|N19|N20|S1|A3)[A-Z]|^TestAttachmentKinds/^tap$"
)

// P14, P17: the same tests pass for a user without privileges.
func TestRootless(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, curl, openssl, hosttest.Program("unshare"), hosttest.Program("setpriv"))
	dir, err := os.MkdirTemp("/var/tmp", "cw") // t.TempDir is below a directory of root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "tests")
	if err := copyProgram(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, unprivilegedUID, unprivilegedUID); err != nil {
		t.Fatal(err)
	}
	tests, want := userTests, 8
	if hosttest.Full() {
		tests, want = allTests, 43
	}
	// Without udev, the device node of TUN belongs to root. Elsewhere all may open it.
	const asUser = `mknod -m 666 "$0" c 10 200 && mount --bind "$0" /dev/net/tun && exec setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"`
	user := strconv.Itoa(unprivilegedUID)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", asUser, filepath.Join(dir, "tun"), user,
		path, "-rootless", "-test.v", "-test.timeout=25m", "-test.run", tests)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "CRANNOG_TEST_HOST=must"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// This is not parallel to the other tests. Without root, no weights keep the gateway ahead of the
	// sandboxes, and its time limit for a TLS handshake passes on a machine that is too busy.
	err = cmd.Run()
	text := out.String()
	if err != nil {
		t.Fatalf("the tests without root: %v\n%s", err, text)
	}
	if n := strings.Count(text, "\n--- PASS: Test"); n < want || contains(text, "--- SKIP") {
		t.Errorf("%d tests passed, want at least %d without a skip\n%s", n, want, text)
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
