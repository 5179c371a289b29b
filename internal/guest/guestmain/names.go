package guestmain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/ids"
)

// become sets the sandbox's host name, unless it is "". With fresh it generates a new boot ID. Only
// Crannog's own kernel supports this; other kernels return ENOSYS.
func become(hostname string, fresh bool) error {
	name := append([]byte(hostname), 0)
	var newBootID uintptr
	if fresh {
		newBootID = 1
	}
	if _, _, errno := unix.Syscall(guestboot.BecomeSyscall, uintptr(unsafe.Pointer(&name[0])), uintptr(len(hostname)), newBootID); errno != 0 {
		return fmt.Errorf("prepare the kernel: %w", errno)
	}
	return nil
}

// Files that contain the machine's name or ID.
const (
	hostnamePath = "/etc/hostname"
	hostsPath    = "/etc/hosts"
	machinePath  = "/etc/machine-id"
	busPath      = "/var/lib/dbus/machine-id"
)

// nameFiles writes the host name and machine ID to the system's files. Files that a policy made
// read-only remain unchanged.
func nameFiles(root string, cfg guest.Config, log *slog.Logger) {
	writers := []func() error{
		func() error { return nameHost(root, cfg.Hostname) },
		func() error { return nameMachine(root, cfg.Renew == guest.Copied) },
	}
	for _, write := range writers {
		if err := write(); err != nil {
			log.Warn("a file with the host name or machine ID was not written", "err", err)
		}
	}
}

// nameHost writes the host name to its file, and replaces the earlier name in the hosts file.
func nameHost(root, name string) error {
	path := filepath.Join(root, hostnamePath)
	before, err := readSmall(path)
	if err != nil || name == "" {
		return err
	}
	old := strings.TrimSpace(string(before))
	if old == name {
		return nil
	}
	if err := overwrite(path, 0o644, []byte(name+"\n")); err != nil {
		return err
	}
	path = filepath.Join(root, hostsPath)
	hosts, err := readSmall(path)
	if err != nil {
		return err
	}
	return overwrite(path, 0o644, renameHost(hosts, old, name))
}

// renameHost replaces a name in a hosts file. If the old name is not listed, it adds the new one
// for a loopback address.
func renameHost(hosts []byte, old, name string) []byte {
	var out bytes.Buffer
	listed := false
	for line := range bytes.Lines(hosts) {
		entry, comment, commented := strings.Cut(strings.TrimRight(string(line), "\n"), "#")
		fields := strings.Fields(entry)
		changed := false
		for i := 1; i < len(fields); i++ {
			if fields[i] == old && old != "localhost" {
				fields[i], changed = name, true
			}
			listed = listed || fields[i] == name
		}
		if changed {
			entry = strings.Join(fields, " ")
		}
		if commented {
			entry += "#" + comment
		}
		out.WriteString(entry + "\n")
	}
	if !listed {
		out.WriteString("127.0.1.1 " + name + "\n")
	}
	return out.Bytes()
}

// uninitialized is the content of the machine ID's file in an image without a machine ID.
const uninitialized = "uninitialized"

// nameMachine generates a machine ID if there is none, or if the sandbox is a copy of another one.
func nameMachine(root string, isCopy bool) error {
	path := filepath.Join(root, machinePath)
	if !isCopy {
		now, err := readSmall(path)
		if text := strings.TrimSpace(string(now)); err != nil || text != "" && text != uninitialized {
			return err
		}
	}
	text := fmt.Appendf(nil, "%x\n", ids.NewUUID())
	if err := overwrite(path, 0o444, text); err != nil {
		return err
	}
	// Usually this is a link to machinePath.
	bus := filepath.Join(root, busPath)
	if info, err := os.Lstat(bus); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return overwrite(bus, 0o444, text)
}

// maxSmall limits files that should have a few lines. A user inside may have made them larger.
const maxSmall = 1 << 20

// readSmall reads a file that may be absent.
func readSmall(path string) ([]byte, error) {
	data, err := readRegular(path, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// readRegular reads a regular file. Users inside may have replaced it: a pipe would block, and a
// device would never end.
func readRegular(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, limit)
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // the file has become shorter
	}
	return data[:n], err
}
