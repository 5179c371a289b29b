// Package gateway owns the process that holds the network attachments of all sandboxes of one state
// directory, and the client that controls it. Servers use the client, and so do commands that run
// without a server. The process outlives the program that started it. It reads hostile data, and
// therefore has no privileges. When it ends, all sandboxes lose their network.
package gateway

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Arg0 is the name of the process.
const Arg0 = "crannog-causeway"

// Names of files in the process's directory.
const (
	dirName    = "causeway"
	socketName = "control.sock"
	// lockName is the file that is locked while a process runs. A program that gets the lock knows
	// that there is no process, and may start one.
	lockName = "lock"
	logName  = "log"
)

// openDir opens the process's directory, which only its owner may enter: access to its socket gives
// access to the network of any sandbox.
func openDir(stateDir string) (*os.File, error) {
	path := filepath.Join(stateDir, dirName)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("causeway: %w", err)
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("causeway: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &info); err != nil {
		dir.Close()
		return nil, fmt.Errorf("causeway: %w", err)
	}
	if int(info.Uid) != os.Geteuid() || info.Mode&0o077 != 0 {
		dir.Close()
		return nil, fault.Newf(fault.Denied, "causeway_directory", "%s is not a directory that only this user may enter", path).
			WithHint("chmod 700 it, or remove it while no sandbox runs")
	}
	return dir, nil
}

// through returns a path to a file in a directory through the directory's descriptor, because a
// socket's address has at most 107 bytes, and the path of a state directory may be longer.
func through(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}
