package interpreter

import (
	"io/fs"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
)

// lockedOut is a starter whose user may enter no directory.
type lockedOut struct{}

func (lockedOut) Start(cmd *exec.Cmd) (Process, error) {
	return nil, &fs.PathError{Op: "chdir", Path: cmd.Dir, Err: syscall.EACCES}
}

// F20: a working directory that the user may not enter is the client's mistake, so the status is
// 400 and not 500.
func TestF20InaccessibleDirectory(t *testing.T) {
	b := newTestServer(t)
	b.server.opts.Starter = lockedOut{}
	for _, path := range []string{"/contexts", "/execute"} {
		status, text := b.call("POST", path, payload{"cwd": b.home, "code": "1"})
		if status != http.StatusBadRequest {
			t.Errorf("%s: status %d", path, status)
		}
		contains(t, path, text, b.home, "cannot be entered by the sandbox's user: permission denied")
	}
	if n := len(b.contexts()); n != 2 {
		t.Errorf("%d contexts", n)
	}
}
