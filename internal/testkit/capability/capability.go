// Package capability owns attempts of a process to gain capabilities, which tests of boundaries
// make.
package capability

import "golang.org/x/sys/unix"

// Raise tries to add CAP_SYS_ADMIN to the permitted and effective capabilities of the calling
// thread. If inheritable is set, it tries the same for the capabilities that a started program
// inherits.
func Raise(inheritable bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
	sets[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	if inheritable {
		sets[0].Inheritable |= 1 << unix.CAP_SYS_ADMIN
	}
	return unix.Capset(&header, &sets[0])
}
