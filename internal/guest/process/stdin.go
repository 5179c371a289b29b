package process

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// Stdin writes the body of a request to a process without a terminal, and answers when the kernel
// has accepted all of it. While the body arrives, it writes what the process accepts without
// blocking, and the rest afterwards. Once the body has been read, the HTTP server notices when the
// caller disconnects. So a process that does not read cannot block an abandoned request.
func (s *Service) Stdin(w http.ResponseWriter, r *http.Request) {
	pid, err := strconv.ParseUint(r.URL.Query().Get("pid"), 10, 32)
	if err != nil || r.ContentLength < 0 || r.ContentLength > guestwire.MaxStdin {
		text := fmt.Sprintf("the query names the process by pid, and the body has a length of at most %d bytes", guestwire.MaxStdin)
		guestwire.RejectStdin(w, r, connect.NewError(connect.CodeInvalidArgument, errors.New(text)))
		return
	}
	p, err := s.table.find(&pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(pid)}}, false)
	if err == nil {
		err = p.writeBody(r)
	}
	if err != nil {
		guestwire.RejectStdin(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// bodies contains buffers of Stdin, which are used only while a body is read.
var bodies = sync.Pool{New: func() any { return new([guestwire.MaxStdin]byte) }}

// writeBody writes the body of a request to the process.
func (p *process) writeBody(r *http.Request) error {
	if p.input == nil || p.tty != nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no stdin, or a terminal"))
	}
	ctx := r.Context()
	buffer := bodies.Get().(*[guestwire.MaxStdin]byte)
	defer bodies.Put(buffer)
	left := r.ContentLength
	var pending []byte // read and not yet written, part of buffer
	for left > 0 {
		if len(pending) == 0 {
			pending = buffer[:0]
		}
		// The buffer always has room for the rest of the body.
		n, err := r.Body.Read(pending[len(pending):min(cap(pending), len(pending)+int(left))])
		pending, left = pending[:len(pending)+n], left-int64(n)
		if err != nil && left > 0 {
			return connect.NewError(connect.CodeCanceled, errors.New("the input broke off"))
		}
		written, err := p.input.writeAvailable(pending)
		if err != nil {
			return inputError(ctx, err)
		}
		pending = pending[written:]
	}
	// Read the body to its end, so that the server starts to notice when the caller disconnects.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return connect.NewError(connect.CodeCanceled, errors.New("the input broke off"))
	}
	if len(pending) == 0 {
		return nil
	}
	return inputError(ctx, p.input.write(ctx, pending))
}
