package gvisor

import (
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// callTables returns the system call tables of a sandbox's kernel.
func callTables() []*sentry.SyscallTable {
	return []*sentry.SyscallTable{linux.AMD64, linux.ARM64}
}

// replaceCalls replaces system calls in all tables of the kernel. replace gets a call's name and
// present implementation, and returns the new one, or nil to keep the present one.
func replaceCalls(replace func(name string, present sentry.SyscallFn) sentry.SyscallFn) {
	for _, table := range callTables() {
		for number, entry := range table.Table {
			if fn := replace(entry.Name, entry.Fn); fn != nil {
				entry.Fn = fn
				table.Table[number] = entry
			}
		}
		table.Init()
	}
}
