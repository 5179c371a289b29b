package perfcount_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/perfcount"
)

// childVariable holds, in the environment of a child process, the number of pages that it touches.
// With the suffix _MORE, the child starts a grandchild that touches as many.
const childVariable = "PERFCOUNT_TOUCH"

func TestMain(m *testing.M) {
	if pages, err := strconv.Atoi(os.Getenv(childVariable)); err == nil {
		os.Exit(touchPages(pages))
	}
	os.Exit(m.Run())
}

func touchPages(pages int) int {
	data, err := unix.Mmap(-1, 0, max(pages, 1)<<12, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 1
	}
	if os.Getenv(childVariable+"_AT_ONCE") != "" && unix.Madvise(data, unix.MADV_POPULATE_WRITE) != nil {
		return 2
	}
	for at := 0; at < len(data); at += 1 << 12 {
		data[at] = 1
	}
	if os.Getenv(childVariable+"_MORE") == "" {
		return 0
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{childVariable + "=" + strconv.Itoa(pages)}
	if cmd.Run() != nil {
		return 3
	}
	return 0
}

func TestCounterIncludesDescendants(t *testing.T) {
	hosttest.Need(t, hosttest.PerfEvents)
	const pages = 4096
	alone := count(t, childVariable+"=0")
	if alone.Faults <= 0 || alone.Switches <= 0 || alone.Processor <= 0 {
		t.Fatalf("a program costs nothing: %+v", alone)
	}
	if alone.HasCalls && alone.Calls <= 0 {
		t.Errorf("a program makes no system calls: %+v", alone)
	}
	// Two processes touch pages; the page faults of Go itself differ from run to run.
	const slack = pages / 4
	both := count(t, childVariable+"="+strconv.Itoa(pages), childVariable+"_MORE=1")
	if touched := both.Faults - 2*alone.Faults; touched < 2*pages-slack || touched > 2*pages+slack {
		t.Errorf("%d page faults for %d pages of two processes", touched, 2*pages)
	}
	if populated := count(t, childVariable+"="+strconv.Itoa(pages), childVariable+"_AT_ONCE=1"); populated.Faults > alone.Faults+slack {
		t.Errorf("populated pages counted as faults: %d, alone %d", populated.Faults, alone.Faults)
	}
}

// count runs this test program with an environment and returns what it cost.
func count(t *testing.T, env ...string) perfcount.Counts {
	t.Helper()
	c, err := perfcount.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = env
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	after, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	return after.Sub(before)
}
