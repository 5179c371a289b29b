package probe

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listen returns the address of a TCP listener.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// closedPort returns an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// echo returns the address of a server that returns each datagram.
func echo(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		var b [16]byte
		for {
			n, from, err := c.ReadFrom(b[:])
			if err != nil {
				return
			}
			if _, err := c.WriteTo(b[:n], from); err != nil {
				return
			}
		}
	}()
	return c.LocalAddr().String()
}

// as runs work as the current user.
func as(work func() error) error { return work() }

// port returns localhost with the port of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("localhost", number)
}

func TestProbeReportsFailedChecks(t *testing.T) {
	dir := t.TempDir()
	full, file := filepath.Join(dir, "full"), filepath.Join(dir, "file")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, filepath.Join(full, "inside")} {
		if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		checks Checks
		want   string
	}{
		{"connection", Checks{Refused: []string{listen(t)}}, "a connection to 127.0.0.1"},
		{"datagram", Checks{Dropped: []string{echo(t)}}, "was answered"},
		{"name that must not exist", Checks{Unknown: []string{"localhost"}}, "the name localhost has the address"},
		{"name that must exist", Checks{Known: []string{"no-such-name.invalid"}}, "has no address"},
		{"hidden file", Checks{Hidden: []string{file}}, "the hidden file"},
		{"hidden directory", Checks{Hidden: []string{full}}, "the hidden directory"},
		{"read-only file", Checks{ReadOnly: []string{file}}, "can be written"},
		{"read-only directory", Checks{ReadOnly: []string{full}}, "new files can be created in"},
		{"sealed directory", Checks{Sealed: []string{full}}, "new files can be created in"},
		{"port that must be reachable", Checks{Known: []string{"localhost"}, Reached: []string{port(t, closedPort(t))}}, "no connection to the allowed localhost:"},
		{"port that must be closed", Checks{Known: []string{"localhost"}, Closed: []string{port(t, listen(t))}}, "the closed localhost:"},
		{"port without a name", Checks{Reached: []string{"localhost:80"}}, "not a port of a known name"},
		{"memory", Checks{MemoryBytes: 1}, "more than the limit"},
		{"disk", Checks{DiskBytes: 1}, "more than the limit"},
		{"files", Checks{DiskInodes: 1}, "files, where the limit is 1"},
		{"processes", Checks{PIDs: 1}, "processes, more than the limit of 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Run(t.Context(), c.checks, as)
			if err == nil || !strings.HasPrefix(err.Error(), Failure) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Run: got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(full, probeName)); err == nil {
		t.Error("the probe did not remove its file")
	}
}

func TestProbePasses(t *testing.T) {
	dir := t.TempDir()
	emptyFile, emptyDir := filepath.Join(dir, "empty"), filepath.Join(dir, "emptyDir")
	if err := os.WriteFile(emptyFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(emptyDir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Checks{
		Refused: []string{closedPort(t)}, Dropped: []string{closedPort(t)},
		Known: []string{"localhost"}, Unknown: []string{"no-such-name.invalid"},
		Reached: []string{port(t, listen(t))}, Closed: []string{port(t, closedPort(t))},
		Hidden:   []string{emptyFile, emptyDir, filepath.Join(dir, "absent")},
		ReadOnly: []string{"/sys/kernel/uevent_seqnum", filepath.Join(dir, "absent")}, MemoryBytes: 1 << 60, DiskBytes: 1 << 62,
		DiskInodes: 1 << 62, PIDs: math.MaxInt64,
	}, as)
	if err != nil {
		t.Fatal(err)
	}
}
