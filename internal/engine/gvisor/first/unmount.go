package first

import "github.com/crannog/crannog/internal/host/prefault"

// exitFailed is the exit code of gVisor's own commands when they fail.
const exitFailed = 128

// program and syncFlag are parts of the arguments of gVisor's unmount command.
const (
	program  = "/proc/self/exe"
	syncFlag = "--sync-fd="
)

// parseUnmount parses the arguments of the command that gVisor starts to unmount one directory. If
// they have an unexpected form, it returns false, and gVisor's own command handles them.
func parseUnmount(args []string) (fd int, dir string, ok bool) {
	if len(args) != 4 || args[0] != program || args[1] != "umount" || len(args[3]) == 0 || args[3][0] != '/' {
		return 0, "", false
	}
	text := args[2]
	if len(text) <= len(syncFlag) || len(text) > len(syncFlag)+4 || text[:len(syncFlag)] != syncFlag {
		return 0, "", false
	}
	for _, digit := range []byte(text[len(syncFlag):]) {
		if digit < '0' || digit > '9' {
			return 0, "", false
		}
		fd = fd*10 + int(digit-'0')
	}
	return fd, args[3], fd > 2
}

// unmount waits for one byte and unmounts the directory. If the pipe ends without a byte, the
// requesting process has ended or failed.
func unmount(fd int, dir string) (code int) {
	if !prefault.ReadByte(fd) || !prefault.Unmount(dir) {
		return exitFailed
	}
	return 0
}
