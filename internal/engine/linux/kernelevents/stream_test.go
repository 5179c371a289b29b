package kernelevents

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// ownNamespace returns the inode of this process's PID namespace.
func ownNamespace(t *testing.T) uint32 {
	t.Helper()
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino)
}

func TestStreamReportsProgramsOfWatchedNamespaces(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	namespace := ownNamespace(t)
	var mu sync.Mutex
	byPID := map[int][]Event{}
	if err := s.Watch(namespace, func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		byPID[e.PID] = append(byPID[e.PID], e)
	}); err != nil {
		t.Fatal(err)
	}
	run := func() int {
		cmd := exec.Command("/bin/sh", "-c", "exit 7", "a word")
		cmd.Env = []string{"NAME=value"}
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 7 {
			t.Fatalf("control: %v", err)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	pid := run()
	mu.Lock()
	got := byPID[pid]
	mu.Unlock()
	if len(got) != 3 || got[0].Kind != Forked || got[1].Kind != Executed || got[2].Kind != Exited {
		t.Fatalf("the events are %+v", got)
	}
	e := got[1]
	if e.Program != "/bin/sh" || strings.Join(e.Args, "|") != "/bin/sh|-c|exit 7|a word" || !slices.Equal(e.Env, []string{"NAME=value"}) || e.Parent != os.Getpid() || e.Cut {
		t.Errorf("the executed program is %+v", e)
	}
	if status := syscall.WaitStatus(got[2].Status); status.ExitStatus() != 7 || got[2].Clock < got[0].Clock {
		t.Errorf("the end is %+v", got[2])
	}
	if lost, err := s.Lost(namespace); lost != 0 || err != nil {
		t.Errorf("%d events are lost, %v", lost, err)
	}
	s.Leave(namespace)
	pid = run()
	mu.Lock()
	defer mu.Unlock()
	if len(byPID[pid]) != 0 {
		t.Errorf("a namespace that is not watched has the events %+v", byPID[pid])
	}
}

// A buffer that is not read fills up, and the events that are lost are counted.
func TestLostEventsAreCounted(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s, err := open(16 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	namespace := ownNamespace(t)
	stopped, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	if err := s.Watch(namespace, func(Event) {
		once.Do(func() { close(stopped); <-proceed })
	}); err != nil {
		t.Fatal(err)
	}
	const n = 100
	if err := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	<-stopped
	lost, err := s.Lost(namespace)
	close(proceed)
	if err != nil || lost == 0 || lost > 3*n+100_000 {
		t.Errorf("%d events are lost, %v", lost, err)
	}
}

func TestOffsetsOfMalformedTypes(t *testing.T) {
	types, err := os.ReadFile(typesPath)
	if err != nil {
		t.Fatalf("this kernel does not describe its types: %v", err)
	}
	if _, err := readOffsets(types); err != nil {
		t.Errorf("control: %v", err)
	}
	for name, data := range map[string][]byte{
		"empty": nil, "no magic": make([]byte, 100), "only a header": types[:24], "half": types[:len(types)/2],
	} {
		if _, err := readOffsets(data); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
