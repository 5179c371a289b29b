package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/interrupt"
)

// input writes to a process, one request at a time. If the process does not read, the request
// blocks until it is cancelled, but not the guest.
type input struct {
	file    *os.File
	turn    chan struct{} // holds a token while no writer is active
	widened bool          // the pipe was made larger; guarded by the turn

	once   sync.Once
	closed chan struct{}
}

func newInput(f *os.File) *input {
	in := &input{file: f, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

// write returns when the kernel has accepted all data.
func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case <-in.turn:
	case <-in.closed:
		return os.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	if err := in.file.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	in.fit(data)
	// This fails only for a closed file, which has no blocked writers.
	inTime := interrupt.When(ctx, func() { _ = in.file.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := in.file.Write(data)
	if !inTime() {
		return ctx.Err()
	}
	return err
}

// fit enlarges the pipe for bulk data. The caller must have the turn.
func (in *input) fit(data []byte) {
	if len(data) > defaultPipe && !in.widened {
		in.widened = true
		enlargePipe(in.file)
	}
}

// writeAvailable writes as much as possible without blocking, and returns how much that was. It
// writes nothing while another request writes.
func (in *input) writeAvailable(data []byte) (n int, err error) {
	select {
	case <-in.turn:
	case <-in.closed:
		return 0, os.ErrClosed
	default:
		return 0, nil
	}
	defer func() { in.turn <- struct{}{} }()
	raw, err := in.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	in.fit(data)
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = ignoringEINTR(int(fd), data, unix.Write) })
	if errors.Is(failed, unix.EAGAIN) {
		failed = nil
	}
	return max(n, 0), errors.Join(err, failed)
}

// ignoringEINTR repeats a call that a signal interrupted.
func ignoringEINTR(fd int, b []byte, call func(int, []byte) (int, error)) (int, error) {
	for {
		n, err := call(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// close closes the input. A blocked write then fails. It may be called more than once.
func (in *input) close() {
	in.once.Do(func() {
		close(in.closed)
		_ = in.file.Close() // a pipe has nothing left to flush
	})
}
