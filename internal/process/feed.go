package process

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guestwire"
)

// piece is how much input one call carries at most. A call costs about the same
// for one byte and for all of it.
const piece = 256 << 10

// lostTime is how long a stream has to end by itself once input is lost.
const lostTime = time.Second

// CodeUnfed is the code of a program that was killed because its input did not
// reach it.
const CodeUnfed = "input_lost"

// Feed copies r to the program, and then its end unless the program has a
// terminal. It returns when the program takes no more, or ctx ends. A program
// whose input is lost on the way is killed, which Pump tells: it would wait for
// the rest for ever, or take a part for the whole.
func (p *Process) Feed(ctx context.Context, r io.Reader) {
	err := p.copy(ctx, r)
	if err == nil || ctx.Err() != nil || finished(err) {
		return
	}
	p.unfed.Store(&err)
	// Of a sandbox that was paused or removed the stream ends too, and a kill
	// would wake the one that is paused.
	select {
	case <-ctx.Done():
	case <-p.ctx.Done():
	case <-time.After(lostTime):
		if p.Kill(ctx) != nil {
			p.cancel() // what is left
		}
	}
}

func (p *Process) copy(ctx context.Context, r io.Reader) error {
	in := readAhead(ctx, r)
	defer in.stop()
	for {
		data, err := in.next()
		if len(data) > 0 {
			if err := p.Write(ctx, data); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case p.tty:
			return nil
		default:
			return p.CloseStdin(ctx)
		}
	}
}

// finished tells whether an error means that the program takes no more input:
// it has ended, or closed it.
func finished(err error) bool {
	return fault.KindOf(err) == fault.NotFound || fault.PublicText(err) == guestwire.StdinClosed
}

// fed is the error of a program that was killed because its input was lost. One
// that ended otherwise did not need the rest.
func (p *Process) fed(exit Exit) error {
	cause := p.unfed.Load()
	if cause == nil || exit.Signal != syscall.SIGKILL {
		return nil
	}
	return fault.Wrap(*cause, fault.Unavailable, CodeUnfed, "a part of the command's input did not reach it, so it was killed").
		WithHint("what it did before that stays; run it again")
}
