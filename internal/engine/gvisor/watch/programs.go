package watch

import (
	"sync"
	"time"
	"unicode/utf8"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"

	"github.com/crannog/crannog/internal/audit/events"
)

// points are the trace points that the watcher receives.
var points = []seccheck.PointReq{
	{Pt: seccheck.PointExecve, Fields: fields(seccheck.FieldCtxtThreadGroupID, seccheck.FieldCtxtParentThreadGroupID, seccheck.FieldCtxtCwd)},
	{Pt: seccheck.PointClone, Fields: fields(seccheck.FieldCtxtThreadGroupID)},
	{Pt: seccheck.PointExitNotifyParent, Fields: fields(seccheck.FieldCtxtThreadGroupID, seccheck.FieldCtxtParentThreadGroupID, seccheck.FieldCtxtThreadGroupStartTime)},
	{Pt: seccheck.PointTaskExit},
}

// fields returns the request for these context fields.
func fields(context ...seccheck.Field) seccheck.FieldSet {
	return seccheck.FieldSet{Context: seccheck.MakeFieldMask(context...)}
}

// guest is the PID of a sandbox's first process. Each process that it starts is a command.
const guest = 1

// family maps each process to its command, even if the parents have ended.
type family struct {
	mu       sync.Mutex
	commands map[int32]int32
}

// born registers a process that was started by the process parent.
func (f *family) born(pid, parent int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commands == nil {
		f.commands = map[int32]int32{}
	}
	if parent == guest {
		f.commands[pid] = pid
	} else if command := f.commands[parent]; command != 0 {
		f.commands[pid] = command
	}
}

// command returns the command of a process, or 0.
func (f *family) command(pid int32) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commands[pid]
}

// died removes a process and returns its command.
func (f *family) died(pid int32) (command int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	command = f.commands[pid]
	delete(f.commands, pid)
	return command
}

// Clone implements seccheck.Sink. If the end of a process could not be recorded, the process must
// not begin. Otherwise a loop that only forks would have no limit.
func (w *watcher) Clone(ctx context.Context, _ seccheck.FieldSet, info *pb.CloneInfo) error {
	parent := info.GetContextData().GetThreadGroupId()
	if info.CreatedThreadGroupId == parent {
		return nil // a thread
	}
	if err := w.join(ctx); err != nil {
		return err
	}
	if err := w.out.Reserve(); err != nil {
		return errRefused
	}
	w.kin.born(info.CreatedThreadGroupId, parent)
	return nil
}

// errRefused is the error for a program whose start could not be recorded.
var errRefused = linuxerr.ENOSPC

// Execve implements seccheck.Sink. It is called before the old program is replaced: a program that
// cannot be recorded does not run.
func (w *watcher) Execve(ctx context.Context, _ seccheck.FieldSet, info *pb.ExecveInfo) error {
	t, ok := ctx.(*sentry.Task)
	if !ok {
		return linuxerr.EIO
	}
	if err := w.join(ctx); err != nil {
		return err
	}
	caller := info.GetContextData()
	pid := caller.GetThreadGroupId()
	e := events.Event{
		Kind: events.Exec, PID: int(pid), Parent: int(caller.GetParentThreadGroupId()), Command: int(w.kin.command(pid)),
		UID: uint32(t.Credentials().EffectiveKUID), Program: info.BinaryPath, Cwd: caller.GetCwd(),
	}
	if e.Program == "" {
		e.Program = info.Execfn
	}
	e.Cut = !utf8.ValidString(e.Cwd)
	e.SetArguments(info.Argv, info.Env)
	if err := w.out.Write(&e, false); err != nil {
		return errRefused
	}
	return nil
}

// ExitNotifyParent implements seccheck.Sink. gVisor holds the lock of all its tasks, so the event
// is written before a parent can wait for the process.
func (w *watcher) ExitNotifyParent(ctx context.Context, _ seccheck.FieldSet, info *pb.ExitNotifyParentInfo) error {
	t, ok := ctx.(*sentry.Task)
	if !ok {
		return nil
	}
	caller := info.GetContextData()
	pid := caller.GetThreadGroupId()
	command := w.kin.died(pid)
	// The group has an exit status only if it was ended as a group.
	status := linux.WaitStatus(info.ExitStatus)
	if status == 0 {
		status = t.ExitStatus()
	}
	e := events.Event{
		Kind: events.Exit, PID: int(pid), Parent: int(caller.GetParentThreadGroupId()), Command: int(command),
		UID:  uint32(t.Credentials().EffectiveKUID),
		Took: time.Duration(max(0, t.Kernel().RealtimeClock().Now().Nanoseconds()-caller.GetThreadGroupStartTimeNs())),
	}
	if status.Signaled() {
		e.Signal = int(status.TerminationSignal())
	} else {
		e.Code = int(status.ExitStatus())
	}
	err := w.out.Write(&e, true)
	if command == pid && pid != 0 {
		w.checkFilesSoon(t)
	}
	return err
}

// TaskExit implements seccheck.Sink. The sandbox ends with the guest, so the guest's end waits
// until all changes are recorded.
func (w *watcher) TaskExit(ctx context.Context, _ seccheck.FieldSet, _ *pb.TaskExit) error {
	t, ok := ctx.(*sentry.Task)
	if !ok {
		return nil
	}
	if err := w.join(ctx); err != nil {
		return err
	}
	if t.ThreadGroup() == t.Kernel().GlobalInit() {
		w.checkFiles(t.Kernel())
	}
	return nil
}

// join registers what already runs, once, before the first task can change it.
func (w *watcher) join(ctx context.Context) error {
	t, ok := ctx.(*sentry.Task)
	if !ok {
		return linuxerr.EIO
	}
	if w.kernel.Load() == nil {
		w.kernel.Store(t.Kernel())
	}
	if w.started.Load() {
		return nil
	}
	w.joined.Do(func() {
		w.adopt(t.Kernel())
		w.started.Store(true)
	})
	return nil
}

// adopt registers a process of a restored sandbox.
func (f *family) adopt(pid, command int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commands == nil {
		f.commands = map[int32]int32{}
	}
	f.commands[pid] = command
}
