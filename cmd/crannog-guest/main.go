// Command crannog-guest is the first process in a sandbox. It reads its configuration from standard
// input and has no use outside of a sandbox. Crannog also starts it in the sandbox with a role as
// first argument: to search files, to serve SFTP, to relay streams, to download a file, or to write
// the changed files of a container. As the
// first process of a jail or a microVM, it prepares that environment before it becomes the guest.
package main

import (
	"github.com/crannog/crannog/internal/engine/docker/inside"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	reexec.Dispatch(setup.Role(), machine.Role(), machine.OverseerRole(), inside.Role())
	guestmain.Play()
}
