package peercred_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/host/peercred"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestOfReturnsPeerOfConnection(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cred, err := peercred.Of(c.(*net.UnixConn))
	if err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Geteuid() {
		t.Errorf("got %+v, %v; want the credentials of this process", cred, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if cred, err := peercred.Of(c.(*net.UnixConn)); err == nil {
		t.Errorf("credentials %+v of a closed connection", cred)
	}
}

func TestEndedDetectsKilledProcess(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for _, running := range []int{pid, os.Getpid(), 0, -1} {
		if peercred.Ended(running) {
			t.Errorf("process %d counts as ended", running)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "a process that was not waited for has ended", func() bool { return peercred.Ended(pid) })
	_ = cmd.Wait() // it was killed
	if !peercred.Ended(pid) {
		t.Error("a process that was waited for counts as running")
	}
}
