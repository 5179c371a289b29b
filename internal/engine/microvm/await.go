package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/fault"
)

// awaitGuest returns when the guest is ready. It calls request when the machine's first process
// runs.
func (b *instance) awaitGuest(ctx context.Context, output *os.File, request func() error) error {
	reader := bufio.NewReader(output)
	err := awaitHello(ctx, output, reader, b.e.o.Emulate)
	if err == nil {
		err = request()
	}
	if err == nil {
		err = answer(output, reader, b.e.startTime())
	}
	return b.awaitReady(ctx, output, reader, err)
}

// awaitRestored returns when the guest of a restored machine is ready.
func (b *instance) awaitRestored(ctx context.Context, output *os.File) error {
	err := output.SetReadDeadline(time.Now().Add(b.e.startTime()))
	return b.awaitReady(ctx, output, bufio.NewReader(output), err)
}

// awaitReady returns when the guest is ready, or explains an error of the start.
func (b *instance) awaitReady(ctx context.Context, output *os.File, reader *bufio.Reader, err error) error {
	if err == nil {
		err = engine.AwaitReady(ctx, outputStream{reader, output})
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	hangs := errors.Is(err, os.ErrDeadlineExceeded)
	text := ""
	if hangs {
		// The machine would not end by itself, and its keeper would not record the text.
		text = b.interrupted()
	} else {
		text = b.lastOutput()
	}
	if text != "" {
		err = fmt.Errorf("%w; the machine printed: %s", err, text)
	}
	if hangs {
		return fault.Wrap(err, fault.Timeout, codeHangs, fmt.Sprintf("the virtual machine did not start its guest within %s: %v", b.e.startTime(), err)).
			WithHint("try again; if it happens again, run crannog doctor, and look at the load of this host")
	}
	return err
}

// codeHangs is the code of the fault of a machine that neither starts nor ends.
const codeHangs = "machine_hangs"

// interrupted ends the machine, so that its keeper records the last output, and returns that.
func (b *instance) interrupted() string {
	if m, known := b.machine(); known {
		_ = m.Kill(endTime) // the sandbox is destroyed in any case
	}
	return b.lastOutput()
}

// Bounds of a start, which only end a hang. An emulated machine is many times slower.
const (
	startTime         = time.Minute
	emulatedStartTime = 10 * time.Minute
)

// startTime bounds how long a machine takes to start its guest, once its kernel runs.
func (e *Engine) startTime() time.Duration {
	switch {
	case e.o.StartTime > 0:
		return e.o.StartTime
	case e.o.Emulate:
		return emulatedStartTime
	}
	return startTime
}

// lastOutput returns the last output of a machine that failed. The machine ends by itself after an
// error, and its keeper records the text.
func (b *instance) lastOutput() string {
	select {
	case <-b.Reaped():
	case <-time.After(endTime):
	}
	exit, _ := b.recordedExit()
	return exit.Text
}

// endTime bounds how long a machine takes to end by itself.
const endTime = 5 * time.Second

// outputStream is the output of a machine, whose beginning has been read.
type outputStream struct {
	*bufio.Reader
	io.Closer
}

// kernelTime bounds how long a kernel on the processor's virtualization takes until its first
// process runs. If /dev/kvm can be opened but does not work, the kernel never reaches that point.
const kernelTime = 20 * time.Second

// awaitHello returns when the machine's first process runs.
func awaitHello(ctx context.Context, output *os.File, reader *bufio.Reader, emulated bool) error {
	defer context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Unix(1, 0)) })()
	if !emulated {
		if err := output.SetReadDeadline(time.Now().Add(kernelTime)); err != nil {
			return err
		}
	}
	line, err := reader.ReadString('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Newf(fault.Unsupported, codeKVM, "the kernel of a virtual machine did not start within %s: /dev/kvm can be opened but does not work", kernelTime).WithHint(kvmHint)
	case err != nil:
		return errors.New("the machine ended before its first process ran")
	case strings.TrimSpace(line) != machine.Hello:
		return fmt.Errorf("unexpected output of the machine: %q", line)
	}
	return output.SetReadDeadline(time.Time{})
}

// answer reads the result of the request. The machine has time to send it and to start the guest.
func answer(output *os.File, reader *bufio.Reader, within time.Duration) error {
	if err := output.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	line, err := reader.ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the machine does not report its root: %w", err)
	}
	if err != nil {
		return errors.New("the machine ended before its root was built")
	}
	var a machine.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("unexpected output of the machine: %q: %w", line, err)
	}
	switch {
	case a.Refused:
		return fault.Newf(fault.Invalid, "path_not_covered", "a path of the policy cannot be hidden or protected: %s", a.Error).
			WithHint("name paths that exist in the sandbox, without symbolic links at their end")
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}
