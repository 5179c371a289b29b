package jail

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// openGateway returns a reference to the gateway's socket for the guest, which connects through it.
// The socket belongs to root in the sandbox: the guest has no other right over it, and no path leads
// to it in the sandbox. So the connections do not depend on this process.
func openGateway(dir string, rec record) (*os.File, error) {
	path := filepath.Join(dir, sandboxdir.GatewayName)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	socket := os.NewFile(uintptr(fd), path)
	if rec.Slot >= 0 {
		err = unix.Fchownat(fd, "", rec.idBase(), rec.idBase(), unix.AT_EMPTY_PATH)
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "chown", Path: path, Err: err}, socket.Close())
	}
	return socket, nil
}
