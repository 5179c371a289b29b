package interpreter

import (
	"io/fs"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
)

// noAccessStarter is a starter whose user may not enter any directory.
type noAccessStarter struct{}

func (noAccessStarter) Start(cmd *exec.Cmd) (Process, error) {
	return nil, &fs.PathError{Op: "chdir", Path: cmd.Dir, Err: syscall.EACCES}
}

// F20: a working directory that the user may not enter is an error of the client. So the status is
// 400, not 500.
func TestF20InaccessibleDirectoryIsClientError(t *testing.T) {
	b := newTestServer(t)
	b.server.opts.Starter = noAccessStarter{}
	for _, path := range []string{"/contexts", "/execute"} {
		status, text := b.call("POST", path, payload{"cwd": b.home, "code": "1"})
		if status != http.StatusBadRequest {
			t.Errorf("working directory %s: got status %d, want 400", path, status)
		}
		contains(t, path, text, b.home, "cannot be entered by the sandbox's user: permission denied")
	}
	if n := len(b.contexts()); n != 2 {
		t.Errorf("got %d contexts, want 2", n)
	}
}
