package guestmain

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/guest"
)

func TestNameFilesWritesHostNameAndMachineID(t *testing.T) {
	for _, c := range []struct{ host, hosts, machine, wantHosts string }{
		{"", "", "", "127.0.1.1 new\n"},
		{"old\n", "127.0.0.1 localhost\n127.0.1.1\told.example old\t# old one\n", "uninitialized\n", "127.0.0.1 localhost\n127.0.1.1 old.example new# old one\n"},
		{"old", "::1 older", "", "::1 older\n127.0.1.1 new\n"},
		{"localhost", "127.0.0.1 localhost\n", "", "127.0.0.1 localhost\n127.0.1.1 new\n"},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dbus"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"etc/hostname": c.host, "etc/hosts": c.hosts, "etc/machine-id": c.machine, "var/lib/dbus/machine-id": "bus\n"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if text != "" {
				write(t, filepath.Join(root, name), text)
			}
		}
		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		nameFiles(root, guest.Config{Hostname: "new"}, log)
		if host, hosts := read("etc/hostname"), read("etc/hosts"); host != "new\n" || hosts != c.wantHosts {
			t.Errorf("hosts file %+v: got host name %q and hosts %q", c, host, hosts)
		}
		id := read("etc/machine-id")
		if len(id) != 33 || read("var/lib/dbus/machine-id") != id {
			t.Errorf("machine ID: got %q, and %q for D-Bus", id, read("var/lib/dbus/machine-id"))
		}
		nameFiles(root, guest.Config{Hostname: "new", Renew: guest.RolledBack}, log)
		if now := read("etc/machine-id"); now != id || read("etc/hosts") != c.wantHosts {
			t.Errorf("a rollback changed the machine ID from %q to %q", id, now)
		}
		nameFiles(root, guest.Config{Hostname: "new", Renew: guest.Copied}, log)
		if now := read("etc/machine-id"); now == id || read("var/lib/dbus/machine-id") != now {
			t.Errorf("a copy has the machine ID %q of its source, or another one for D-Bus", now)
		}
	}
}

// If a user inside has replaced a file by a directory, the other files are still written.
func TestNameFilesSkipsDirectories(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/hostname", "etc/hosts"} {
		if err := os.MkdirAll(filepath.Join(root, dir, "full"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nameFiles(root, guest.Config{Hostname: "new"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := nameHost(root, "new"); err == nil {
		t.Error("nameHost returned no error for a directory")
	}
	if id, err := os.ReadFile(filepath.Join(root, "etc/machine-id")); err != nil || len(id) != 33 {
		t.Errorf("machine ID: got %q, %v, want 32 digits", id, err)
	}
}
