package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// piece is the greatest amount of input in one call. A call costs about the same for one byte and
// for all of it.
const piece = 256 << 10

// bodyPiece is the greatest amount in the body of a request, if the guest supports that. Less than
// bodyLeast is sent in a call.
const (
	bodyPiece = guestwire.MaxStdin
	bodyLeast = 16 << 10
)

// lostTime is how long a stream has to end by itself once input is lost.
const lostTime = time.Second

// CodeUnfed is the code of a program that was killed because its input was lost.
const CodeUnfed = "input_lost"

// Feed copies r to the program, and then closes its input unless the program has a terminal. It
// returns when the program accepts no more, or ctx ends. A program whose input is lost on the way
// is killed, which Pump reports: otherwise it would wait for the rest for ever, or take a part for
// the whole.
func (p *Process) Feed(ctx context.Context, r io.Reader) {
	err := p.copy(ctx, r)
	if err == nil || ctx.Err() != nil || finished(err) {
		return
	}
	p.unfed.Store(&err)
	// If the sandbox was paused or removed, the stream ends too, and a kill would resume the paused
	// one.
	select {
	case <-ctx.Done():
	case <-p.ctx.Done():
	case <-time.After(lostTime):
		if p.Kill(ctx) != nil {
			p.cancel() // the rest
		}
	}
}

func (p *Process) copy(ctx context.Context, r io.Reader) error {
	most, bodies := piece, p.bodies && !p.tty
	if bodies {
		most = bodyPiece
	}
	in := readAhead(ctx, r, most)
	defer in.stop()
	for {
		data, err := in.next()
		if len(data) > 0 {
			write := p.Write
			if bodies && len(data) >= bodyLeast {
				write = p.pour
			}
			if err := write(ctx, data); err != nil {
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

// pour is Write with the data as the body of a request.
func (p *Process) pour(ctx context.Context, data []byte) error {
	url := p.client.base + guestwire.StdinPath + "?pid=" + strconv.FormatUint(uint64(p.pid), 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	p.client.dress(req.Header, p.user)
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := p.client.doer.Do(req)
	if err != nil {
		code := connect.CodeUnavailable
		if ctx.Err() != nil {
			code = connect.CodeCanceled
		}
		return toFault(connect.NewError(code, err))
	}
	defer res.Body.Close()
	return toFault(guestwire.StdinError(res))
}

// finished reports whether an error means that the program accepts no more input: it has ended, or
// closed it.
func finished(err error) bool {
	if fault.KindOf(err) == fault.NotFound {
		return true
	}
	// The wrapped text: the public text of an internal error reveals nothing.
	said, ok := errors.AsType[*fault.Error](err)
	return ok && said.Text == guestwire.StdinClosed
}

// fed returns the error of a program that was killed because its input was lost. A program that
// ended otherwise did not need the rest.
func (p *Process) fed(exit Exit) error {
	cause := p.unfed.Load()
	if cause == nil || exit.Signal != syscall.SIGKILL {
		return nil
	}
	return fault.Wrap(*cause, fault.Unavailable, CodeUnfed, "a part of the command's input did not reach it, so it was killed").
		WithHint("what it did before that stays; run it again")
}
