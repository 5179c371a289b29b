package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Removing a group kills a process that no record names. The server's own thread in a group does
// not affect the server.
func TestRemoveKillsProcesses(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tree, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	g, err := tree.Create("removetest"+strconv.Itoa(os.Getpid()), limits)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "sleep 1000 & sleep 1000")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	leave, joined := make(chan struct{}), make(chan error, len(g.Dirs))
	if tree.Version() == 1 {
		go keepThreadIn(g, joined, leave)
		for err := range joined {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	removed := make(chan error, 1)
	go func() { removed <- g.Remove() }()
	err = <-ended // before the thread leaves
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("the program ended with %v", err)
	}
	close(leave)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	for _, dir := range g.Dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the directory %s is left: %v", dir, err)
		}
	}
}

// keepThreadIn keeps a thread of this process, not the first one, in a group.
func keepThreadIn(g *Group, joined chan<- error, leave <-chan struct{}) {
	runtime.LockOSThread() // it is never unlocked, so that the thread ends
	if unix.Gettid() == os.Getpid() {
		defer runtime.UnlockOSThread()
		go keepThreadIn(g, joined, leave)
		<-leave
		return
	}
	for _, dir := range g.Dirs {
		joined <- write(filepath.Join(dir, "tasks"), "0")
	}
	close(joined)
	<-leave
}

// A process that is listed only because of one thread is not a member.
func TestMembersExcludesSingleThreads(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.procs": "0\n12\n13\n" + strconv.Itoa(os.Getpid()), "tasks": "0\n12\n130\n" + strconv.Itoa(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := members(dir); len(got) != 1 || got[0] != 12 {
		t.Errorf("version 1: %v", got)
	}
	if err := os.Remove(filepath.Join(dir, "tasks")); err != nil {
		t.Fatal(err)
	}
	if got := members(dir); !slices.Equal(got, []int{12, 13, os.Getpid()}) {
		t.Errorf("version 2: %v", got)
	}
}
