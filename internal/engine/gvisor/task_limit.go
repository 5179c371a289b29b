package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"
)

// RLIMIT_NPROC is the limit of processes of a sandbox. As in Linux, it does not apply to a process
// with CAP_SYS_ADMIN, which root has in a sandbox with containers inside. The calls that create
// processes and threads therefore also count all of them, and refuse such a process what the limit
// of the sandbox's first process refuses others.

// creators are the calls that create processes or threads.
var creators = map[string]bool{"clone": true, "clone3": true, "fork": true, "vfork": true}

// limitTasks wraps the calls that create processes and threads.
func limitTasks() {
	replaceCalls(func(name string, present sentry.SyscallFn) sentry.SyscallFn {
		if !creators[name] {
			return nil
		}
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			if exceedsTasks(t) {
				return 0, nil, linuxerr.EAGAIN
			}
			return present(t, number, args)
		}
	})
}

// exceedsTasks reports whether a process that RLIMIT_NPROC does not limit would create one process
// too many. The limit is that of the first process, which no program can raise without
// CAP_SYS_RESOURCE. The first process itself, the guest, is exempt, so that its owner can still run
// commands. Concurrent calls may exceed the limit by their number.
func exceedsTasks(t *sentry.Task) bool {
	first := t.Kernel().GlobalInit()
	if first == nil || t.ThreadGroup() == first || !t.Credentials().HasRootCapability(linux.CAP_SYS_ADMIN) {
		return false
	}
	return uint64(t.Kernel().RootPIDNamespace().NumTasks()) >= first.Limits().Get(limits.ProcessCount).Cur
}
