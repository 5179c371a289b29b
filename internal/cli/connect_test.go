package cli

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// diesListening is the environment variable with the path of a socket. With it, this test program
// listens on the socket, passes it to a child process, and exits.
const diesListening = "CRANNOG_TEST_DIES_LISTENING"

func TestMain(m *testing.M) {
	if socket := os.Getenv(diesListening); socket != "" {
		dieListening(socket)
	}
	os.Exit(m.Run())
}

// dieListening listens on a socket, starts a process that keeps the socket open, prints the PID of
// that process, and exits.
func dieListening(socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	inherited, err := l.(*net.UnixListener).File()
	if err != nil {
		panic(err)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{inherited}
	if err := child.Start(); err != nil {
		panic(err)
	}
	os.Stdout.WriteString(strconv.Itoa(child.Process.Pid))
	os.Exit(0)
}

// A process that a killed server was starting may hold the server's socket. Connections to it
// succeed, but are never served.
func TestDeadServerDoesNotAnswer(t *testing.T) {
	dir, err := os.MkdirTemp("", "cli") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	if answers(t.Context(), socket) {
		t.Error("a socket that does not exist answers")
	}

	dead := filepath.Join(dir, "dead")
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), diesListening+"="+dead)
	out, err := server.Output()
	if err != nil {
		t.Fatal(err)
	}
	childPID, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(childPID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Kill() }()
	c, err := net.Dial("unix", dead)
	if err != nil {
		t.Fatalf("the control: the socket is not held: %v", err)
	}
	c.Close()
	if answers(t.Context(), dead) {
		t.Error("a dead server answers")
	}

	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !answers(t.Context(), socket) {
		t.Error("a server that listens does not answer")
	}
}
