// Package capability owns attempts of a process to gain capabilities, which tests of boundaries
// make.
package capability

import "golang.org/x/sys/unix"

// Raise adds CAP_SYS_ADMIN to the permitted and effective capabilities of the calling thread. If
// inheritable is set, it also adds it to those that a program which the thread starts inherits.
func Raise(inheritable bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return err
	}
	have[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
	have[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	if inheritable {
		have[0].Inheritable |= 1 << unix.CAP_SYS_ADMIN
	}
	return unix.Capset(&header, &have[0])
}
