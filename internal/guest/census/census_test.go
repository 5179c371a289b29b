package census_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/census"
)

// Take lists this process, its child, and the port on which it listens.
func TestTakeListsProcessesAndPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	c, err := census.Take("/proc")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pid int) census.Process {
		t.Helper()
		i := slices.IndexFunc(c.Processes, func(p census.Process) bool { return p.PID == pid })
		if i < 0 {
			t.Fatalf("process %d is not in the list", pid)
		}
		return c.Processes[i]
	}
	if me := find(os.Getpid()); me.Parent != os.Getppid() || me.Args[0] != os.Args[0] || me.Memory == 0 || int(me.UID) != os.Getuid() || me.Start == 0 {
		t.Errorf("this process: got %+v", me)
	}
	if p := find(child.Process.Pid); p.Parent != os.Getpid() || !slices.Equal(p.Args, []string{"sleep", "60"}) {
		t.Errorf("child process: got %+v", p)
	}
	if port := l.Addr().(*net.TCPAddr).Port; !slices.Contains(c.Ports, port) {
		t.Errorf("port %d is not among %v", port, c.Ports)
	}
	if _, err := census.Take(t.TempDir() + "/none"); err == nil {
		t.Error("Take of a missing directory returned no error")
	}
}

// A program's name may contain any bytes, which must not shift the other fields.
func TestParseStat(t *testing.T) {
	line := "7 (a) 9 (b\xff) S 3 7 7 0 0 0 0 0 0 0 250 50 0 0 20 0 1 0 4711 1000 5 0"
	p, name, ok := census.ParseStat(line)
	if !ok || p.PID != 7 || p.Parent != 3 || p.CPU.Seconds() != 3 || p.Start != 4711 || p.Memory != int64(5*os.Getpagesize()) || name != "a) 9 (b\xff" {
		t.Errorf("ParseStat: got %+v, %q, %t", p, name, ok)
	}
	for _, bad := range []string{"", "7", "7 (x", "x (y) S 1", "7 ) S (", "-1 (x) S 3 7 7 0 0 0 0 0 0 0 250 50 0 0 20 0 1 0 4711 1000 5 0"} {
		if _, _, ok := census.ParseStat(bad); ok {
			t.Errorf("ParseStat accepted %q", bad)
		}
	}
}

func TestListeners(t *testing.T) {
	table := "  sl  local_address rem_address   st\n" +
		"   0: 00000000:1F90 00000000:0000 0A 00000000:00000000\n" +
		"   1: 0100007F:1F91 0100007F:9999 01 00000000:00000000\n" +
		"   2: 0200007F:0050 00000000:0000 0A 00000000:00000000\n" +
		"   3: 00000000000000000000000001000000:0BB8 0000:0000 0A 0\n" +
		"   4: nothing 0A 0A 0A\n   5: 00000000:FFFFF 0:0 0A\n   6: 00:0050 0:0 0A\n   7: 0100007F:0000 0:0 0A\n"
	want := []netip.AddrPort{
		netip.MustParseAddrPort("0.0.0.0:8080"), netip.MustParseAddrPort("127.0.0.2:80"), netip.MustParseAddrPort("[::1]:3000"),
	}
	if got := census.Listeners([]byte(table)); !slices.Equal(got, want) {
		t.Errorf("Listeners: got %v, want %v", got, want)
	}
}

// F5: for each address on which a program can listen, Reach returns an address that can be dialled.
func TestF5ReachableAddresses(t *testing.T) {
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	for table, text := range map[string]string{
		"tcp": "0: 0200C70A:1F90 0:0 0A 0\n1: 00000000:1F90 0:0 0A 0\n2: 0100007F:1F90 0:0 0A 0\n3: 0200007F:1F90 0:0 0A 0\n4: 0100007F:1F91 0:0 0A 0\n",
		"tcp6": "0: 00000000000000000000000000000000:1F90 0:0 0A 0\n1: 00000000000000000000000001000000:1F90 0:0 0A 0\n" +
			"2: 000080FE000000000000000001000000:1F90 0:0 0A 0\n",
	} {
		if err := os.WriteFile(filepath.Join(proc, "net", table), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.2:8080"),
		netip.MustParseAddrPort("[::1]:8080"), netip.MustParseAddrPort("10.199.0.2:8080"),
	}
	if got := census.Reach(proc, 8080); !slices.Equal(got, want) {
		t.Errorf("Reach: got %v, want %v", got, want)
	}
	if got := census.Reach(proc, 9); len(got) != 0 {
		t.Errorf("a port without a listener: %v", got)
	}
}

func FuzzStat(f *testing.F) {
	f.Add("7 (a) S 3 7 7 0 0 0 0 0 0 0 250 50 0 0 20 0 1 0 4711 1000 5 0")
	f.Add("1 ((()))) R 9223372036854775807 -1 x 0 0 0 0 0 0 0 9223372036854775807 9223372036854775807 0 0 20 0 1 0 -1 1000 9223372036854775807 0")
	f.Fuzz(func(t *testing.T, line string) {
		p, _, ok := census.ParseStat(line)
		if ok && (p.PID <= 0 || p.Parent < 0 || p.CPU < 0 || p.Memory < 0) {
			t.Errorf("ParseStat of %q: got the invalid process %+v", line, p)
		}
	})
}

func FuzzListeners(f *testing.F) {
	f.Add([]byte("   0: 00000000:1F90 00000000:0000 0A 0\n"))
	f.Add([]byte("   0: 00000000000000000000000001000000:1F90 0:0 0A 0\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		for _, l := range census.Listeners(table) {
			if l.Port() == 0 || !l.Addr().IsValid() {
				t.Errorf("Listeners of %q: got the invalid address %s", table, l)
			}
		}
	})
}

// An answer of a program that has replaced the guest is truncated to the limits of the guest.
func TestBoundTruncates(t *testing.T) {
	c := census.Census{Ports: make([]int, 5000)}
	for range 5000 {
		args := slices.Repeat([]string{strings.Repeat("é", 1000)}, 500)
		command := &census.Command{Args: args, Tag: strings.Repeat("g", 9999)}
		c.Processes = append(c.Processes, census.Process{PID: 2, Args: args, User: strings.Repeat("u", 9999), Tag: "t", CPU: -1, Memory: -1, Command: command})
	}
	c.Bound()
	if len(c.Processes) != census.MaxProcesses || len(c.Ports) != census.MaxPorts || !c.Cut {
		t.Errorf("got %d processes, %d ports, cut %t", len(c.Processes), len(c.Ports), c.Cut)
	}
	p := c.Processes[7]
	if size := len(strings.Join(p.Args, "")); size > 2048 || len(p.User) > 2048 || p.Tag != "t" || p.CPU != 0 || p.Memory != 0 {
		t.Errorf("%d bytes of arguments, %d of the user, %+v", size, len(p.User), p.CPU)
	}
	if size := len(strings.Join(p.Command.Args, "")); size > 512 || len(p.Command.Tag) > 512 {
		t.Errorf("the command has %d bytes of arguments and %d of the tag", size, len(p.Command.Tag))
	}
	taken, err := census.Take("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range taken.Processes {
		single := census.Census{Processes: []census.Process{p}}
		single.Processes[0].Args = slices.Clone(p.Args)
		if single.Bound(); !slices.Equal(single.Processes[0].Args, p.Args) {
			t.Errorf("Bound shortened arguments that Take returned: %q", p.Args)
		}
	}
}

// A process may end while it is read, and an attacker may mount another file system at /proc.
func TestTakeOmitsWhatItCannotRead(t *testing.T) {
	proc := t.TempDir()
	const stat = "(kworker) S 2 0 0 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	for name, text := range map[string]string{
		"10/stat": "10 " + stat, "10/cmdline": "", // the kernel's own process
		"11/stat": "11 " + stat,                    // it has ended before its arguments were read
		"12/stat": "13 " + stat, "12/cmdline": "x", // another process has its ID
		"13/stat": "13 (x", "13/cmdline": "x",
		"14/cmdline": "x", "0/stat": "0 " + stat, "self/stat": "10 " + stat,
	} {
		if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := census.Take(proc)
	if err != nil || len(c.Processes) != 1 || c.Processes[0].PID != 10 || !slices.Equal(c.Processes[0].Args, []string{"[kworker]"}) {
		t.Errorf("Take: got %+v, %v, want only process 10", c, err)
	}
	if family, err := census.Family(proc, 99, nil); err != nil || len(family) != 0 {
		t.Errorf("Family of a missing process: got %v, %v, want none", family, err)
	}
	missing := filepath.Join(proc, "missing")
	_, takeErr := census.Take(missing)
	_, familyErr := census.Family(missing, 1, nil)
	if takeErr == nil || familyErr == nil {
		t.Errorf("without /proc: Take: %v, Family: %v, want errors", takeErr, familyErr)
	}
}
