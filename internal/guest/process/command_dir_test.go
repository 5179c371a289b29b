package process_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// F20: the kernel returns EACCES for the directory as for the program. The error tells the caller
// which of them to change.
func TestF20CommandErrorNamesTheDirectory(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	b := newTestService(t, func(c *process.Config) { c.Actor.Switch = true })
	user := identity.User{Name: "stranger", UID: 54321, GID: 54321}
	privateDir := t.TempDir()
	if err := os.Chmod(privateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, dir string
		chdir        bool
	}{{"/bin/true", privateDir, true}, {"/bin/true", privateDir + "/gone", true}, {"/etc/passwd", "/", false}, {"/etc/passwd", "", false}} {
		cmd := exec.Command(c.program)
		cmd.Dir = c.dir
		_, err := b.service.Command(user, cmd)
		p, ok := errors.AsType[*fs.PathError](err)
		if err == nil || (ok && p.Op == "chdir") != c.chdir || c.chdir && p.Path != c.dir {
			t.Errorf("Command %s in %q: got %v", c.program, c.dir, err)
		}
	}
	ok := exec.Command("/bin/true")
	ok.Dir = "/"
	if c, err := b.service.Command(user, ok); err != nil || c.Wait().ExitStatus() != 0 {
		t.Errorf("Command in /: got %v, want success", err)
	}
}
