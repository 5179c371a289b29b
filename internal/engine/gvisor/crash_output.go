package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// crashOutputName is the file in a sandbox's directory that receives the standard error of its
// kernel, which is the output of Go's runtime about a crash.
const crashOutputName = "panic"

// maxCrashOutput bounds how much of the file is read. A sandbox that has broken into its kernel may
// write any amount.
const maxCrashOutput = 512

// endTimeout bounds the wait for the end of a sandbox that does not answer.
const endTimeout = 5 * time.Second

// errKilled is the error for a guest that was killed by a signal before it was ready. Only gVisor
// or the host can have sent the signal, because no other program of the sandbox runs yet.
var errKilled = fmt.Errorf("%w: ended by signal", engine.ErrSilent)

// errKernelEnded is the error for a kernel that ended without a message. If a guest was killed, its
// kernel can be gone before the exit status of the guest is read.
var errKernelEnded = errors.New("its kernel ended: it may have been killed, or the host may lack memory")

// endedEarly reports whether a start failed because the guest or the kernel was killed, so that
// another attempt may succeed.
func endedEarly(err error) bool {
	return errors.Is(err, errKilled) || errors.Is(err, errKernelEnded)
}

// silentEnd returns the reason for the end of a guest that printed nothing.
func (b *instance) silentEnd(ctx context.Context) error {
	ended := make(chan *unix.WaitStatus, 1)
	// The call ends with the kernel, which the caller is about to kill.
	go func() { ended <- b.guestExit() }()
	late := time.NewTimer(endTimeout)
	defer late.Stop()
	select {
	case status := <-ended:
		switch {
		case status == nil:
		case status.Signaled() && b.rec.Group != nil && b.rec.Group.OOMKills() > 0:
			return fmt.Errorf("%w: the memory of the sandbox's group was used up", engine.ErrSilent)
		case status.Signaled():
			// gVisor also kills a guest with SIGKILL when it mistakes the guest's host process for
			// dead.
			return fmt.Errorf("%w %s", errKilled, unix.SignalName(status.Signal()))
		default:
			return fmt.Errorf("%w, with exit code %d", engine.ErrSilent, status.ExitStatus())
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return engine.ErrSilent
	}
	if message := b.crashMessage(); message != "" {
		return fmt.Errorf("its kernel crashed: %q", message)
	}
	return errKernelEnded
}

// noAnswerError is the error of a call that the sandbox's kernel did not answer.
type noAnswerError struct{ error }

// Unwrap supports errors.Is and errors.As.
func (u *noAnswerError) Unwrap() error { return u.error }

// endedMeanwhile replaces an error of a call to the sandbox's kernel if its cause is the end of the
// sandbox, for example because the sandbox reached its memory limit.
func (b *instance) endedMeanwhile(ctx context.Context, err error) error {
	if _, noAnswer := errors.AsType[*noAnswerError](err); !noAnswer || fault.KindOf(err) != fault.Internal {
		return err
	}
	late := time.NewTimer(endTimeout)
	defer late.Stop()
	select {
	case <-b.guestless:
	case <-ctx.Done():
		return err
	case <-late.C:
		return err
	}
	ended := fault.Wrap(err, fault.NotFound, "sandbox_ended", fmt.Sprintf("sandbox %q has ended during the call", b.rec.ID))
	select {
	case <-b.done:
		if b.exit.Reason == engine.ReasonOOM {
			return ended.WithHint("it reached its memory limit; give it more with --memory")
		}
	case <-ctx.Done():
	case <-late.C:
	}
	return ended
}

// crashMessage returns the first line that the sandbox's kernel printed about its crash, or "". The
// sandbox may have written it, so callers must quote it.
func (b *instance) crashMessage() string {
	f, err := os.OpenFile(filepath.Join(b.dir, crashOutputName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "" // a sandbox of an earlier version
	}
	defer f.Close()
	output, err := io.ReadAll(io.LimitReader(f, maxCrashOutput))
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	return string(line)
}
