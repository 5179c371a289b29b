package process

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/interrupt"
)

// input writes to a process, one request at a time and in their order. A
// process that does not read blocks the request, not the guest: the request's
// end frees it.
type input struct {
	file *os.File
	turn chan struct{} // holds a token while nobody writes
	wide bool          // the pipe was made larger; whoever has the turn may touch it

	once   sync.Once
	closed chan struct{}
}

func newInput(f *os.File) *input {
	in := &input{file: f, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

// write returns when all of data is with the kernel.
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
	if len(data) > usualPipe && !in.wide {
		in.wide = true
		widen(in.file)
	}
	// It fails only for a closed file, whose writers are free already.
	inTime := interrupt.When(ctx, func() { _ = in.file.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := in.file.Write(data)
	if !inTime() {
		return ctx.Err()
	}
	return err
}

// close ends the input; a blocked write fails. Closing twice is fine.
func (in *input) close() {
	in.once.Do(func() {
		close(in.closed)
		_ = in.file.Close() // a pipe has nothing left to flush
	})
}
