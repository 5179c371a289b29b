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

// piece is the maximum amount of input in one call. The cost of a call hardly depends on its size.
const piece = 256 << 10

// bodyPiece is the maximum amount of input in the body of a request, if the guest supports that.
// Input smaller than minBody is sent in a call.
const (
	bodyPiece = guestwire.MaxStdin
	minBody   = 16 << 10
)

// lostWait is how long to wait for the stream to end by itself after sending input has failed.
const lostWait = time.Second

// CodeUnfed is the error code for a program that was killed because a part of its input was lost.
const CodeUnfed = "input_lost"

// Feed copies r to the program's input, then closes the input unless the program has a terminal. It
// returns when the program accepts no more input or ctx ends. If input is lost in transit, Feed
// kills the program and Stream returns an error. Otherwise the program would wait for ever, or
// treat a part of its input as all of it.
func (p *Process) Feed(ctx context.Context, r io.Reader) {
	err := p.copy(ctx, r)
	if err == nil || ctx.Err() != nil || finished(err) {
		return
	}
	p.unfed.Store(&err)
	// If the sandbox was paused or removed, the stream ends too. Killing the program would resume a
	// paused sandbox.
	select {
	case <-ctx.Done():
	case <-p.ctx.Done():
	case <-time.After(lostWait):
		if p.Kill(ctx) != nil {
			p.cancel() // at least end the stream
		}
	}
}

// copy copies r to the program's input until r ends or an error occurs.
func (p *Process) copy(ctx context.Context, r io.Reader) error {
	limit, bodies := piece, p.bodies && !p.tty
	if bodies {
		limit = bodyPiece
	}
	in := readAhead(ctx, r, limit)
	defer in.stop()
	for {
		data, err := in.next()
		if len(data) > 0 {
			write := p.Write
			if bodies && len(data) >= minBody {
				write = p.writeBody
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

// writeBody is like Write, but sends the data as the body of a request.
func (p *Process) writeBody(ctx context.Context, data []byte) error {
	url := p.client.base + guestwire.StdinPath + "?pid=" + strconv.FormatUint(uint64(p.pid), 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	p.client.setHeaders(req.Header, p.user)
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

// finished reports whether err means that the program accepts no more input, because it has ended
// or closed its input.
func finished(err error) bool {
	if fault.KindOf(err) == fault.NotFound {
		return true
	}
	// Use the wrapped text, because the public text of an internal error has no details.
	rejection, ok := errors.AsType[*fault.Error](err)
	return ok && rejection.Text == guestwire.StdinClosed
}

// inputError returns an error if the program was killed because its input was lost. A program that
// ended in another way did not need the rest of its input.
func (p *Process) inputError(exit Exit) error {
	cause := p.unfed.Load()
	if cause == nil || exit.Signal != syscall.SIGKILL {
		return nil
	}
	return fault.Wrap(*cause, fault.Unavailable, CodeUnfed, "a part of the command's input did not reach it, so it was killed").
		WithHint("its effects so far remain; run it again")
}
