package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// attempts is the variable with the attempts of a confined program, in JSON.
const attempts = "KEEPER_TEST_ATTEMPTS"

// targets lists what a program that has taken over QEMU tries to reach.
type targets struct {
	Secret, Dir, Address string
	PID                  int
	Allowed              string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(attempts); text != "" {
		try(text)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// try prints what the program reaches.
func try(text string) {
	var to targets
	if err := json.Unmarshal([]byte(text), &to); err != nil {
		panic(err)
	}
	report := func(name string, err error) {
		if err == nil {
			fmt.Println(name)
		}
	}
	_, err := os.ReadFile(to.Secret)
	report("read", err)
	report("write", os.WriteFile(filepath.Join(to.Dir, fmt.Sprint(os.Getpid())), nil, 0o600))
	_, err = os.ReadDir(to.Dir)
	report("list", err)
	conn, err := net.Dial("tcp", to.Address)
	report("connect", err)
	if err == nil {
		conn.Close()
	}
	report("signal", unix.Kill(to.PID, 0))
	report("namespace", unix.Unshare(unix.CLONE_NEWNS))
	report("user", unix.Setuid(0))
	report("limit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
	f, err := os.Open(to.Allowed)
	report("allowed", err)
	if err == nil {
		f.Close()
	}
}

// A program that has taken over QEMU reaches no file, network or process of the host. The control is
// the same program as the keeper's user.
func TestConfinedProgramReachesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, err := os.MkdirTemp("/var/tmp", "confine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "bin", "program")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := targets{Secret: filepath.Join(dir, "secret"), Dir: filepath.Join(dir, "open"), Address: l.Addr().String(), PID: os.Getpid(), Allowed: filepath.Join(dir, "allowed")}
	// Permissions alone would refuse none of these.
	if err := errors.Join(os.Chmod(dir, 0o777), os.Mkdir(filepath.Dir(program), 0o755), os.WriteFile(program, data, 0o755), os.WriteFile(to.Secret, []byte("x"), 0o644),
		os.Mkdir(to.Dir, 0o777), os.Chmod(to.Dir, 0o777), os.WriteFile(to.Allowed, []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	run := func(start func(cmd *exec.Cmd) error) string {
		t.Helper()
		var out strings.Builder
		cmd := exec.Command(program)
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{attempts + "=" + string(text)}, &out, &out
		if err := start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	if got, want := run((*exec.Cmd).Start), "read write list connect signal namespace user limit allowed"; got != want {
		t.Fatalf("control: an unconfined program reached %q, want %q", got, want)
	}
	allowed, err := os.Open(to.Allowed)
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	got := run(func(cmd *exec.Cmd) error { return startOnThread(cmd, true, allowed) })
	if got != "allowed" {
		t.Errorf("a confined program reached %q, want only what is allowed", got)
	}
}
