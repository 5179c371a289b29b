package process

import (
	"context"
	"errors"
	"os"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// List returns the running processes.
func (s *Service) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	res := &pb.ListResponse{}
	for _, p := range s.table.list() {
		res.Processes = append(res.Processes, p.info())
	}
	return connect.NewResponse(res), nil
}

// Update resizes a terminal.
func (s *Service) Update(_ context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	p, err := s.table.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if req.Msg.Pty != nil {
		if p.tty == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
		}
		if err := p.tty.resize(req.Msg.GetPty().GetSize()); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
	}
	return connect.NewResponse(&pb.UpdateResponse{}), nil
}

// SendSignal signals a process and its group.
func (s *Service) SendSignal(_ context.Context, req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	p, err := s.table.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	// The protocol's enumeration has two signals but is open. Crannog's clients send other signals
	// of a terminal by number.
	sig := syscall.Signal(req.Msg.GetSignal())
	if sig < 1 || sig > 31 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the signal must be SIGNAL_SIGTERM, SIGNAL_SIGKILL or a number from 1 to 31"))
	}
	err = p.signal(sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil, notFound(req.Msg.GetProcess())
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}

// SendInput writes to a process and returns when the kernel has accepted the data.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	p, err := s.table.find(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := p.feed(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SendInputResponse{}), nil
}

// StreamInput writes many pieces of input. The first message names the process.
func (s *Service) StreamInput(ctx context.Context, stream *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var p *process
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			found, err := s.table.find(e.Start.GetProcess(), false)
			if err != nil {
				return nil, err
			}
			p = found
		case *pb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("data came before the process was named"))
			}
			if err := p.feed(ctx, e.Data.GetInput()); err != nil {
				return nil, err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), nil
}

// CloseStdin closes the input of a process without a terminal. It succeeds if the input is already
// closed or the process has ended.
func (s *Service) CloseStdin(_ context.Context, req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	p, err := s.table.find(req.Msg.GetProcess(), true)
	if err != nil {
		return nil, err
	}
	if p.tty != nil {
		return nil, connect.NewError(connect.CodeUnknown, errors.New("a terminal's input cannot be closed; send Ctrl-D instead"))
	}
	if p.input != nil {
		p.input.close()
	}
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}

// feed writes the kind of input that the process accepts.
func (p *process) feed(ctx context.Context, in *pb.ProcessInput) error {
	var data []byte
	switch kind := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if p.tty != nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process reads from a terminal; send pty input"))
		}
		data = kind.Stdin
	case *pb.ProcessInput_Pty:
		if p.tty == nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has no terminal; send stdin input"))
		}
		data = kind.Pty
	default:
		return connect.NewError(connect.CodeInvalidArgument, errors.New("input is missing"))
	}
	if p.input == nil {
		return connect.NewError(connect.CodeInternal, errors.New("stdin is not enabled for the process"))
	}
	if p.tty != nil {
		if g := p.tty.interrupted(data); g != nil {
			defer func() { go g.follow() }()
		}
	}
	return inputError(ctx, p.input.write(ctx, data))
}

// inputError converts an error about input for the caller.
func inputError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err() // connect knows the codes of a context's errors
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return connect.NewError(connect.CodeInternal, errors.New(guestwire.StdinClosed))
	}
	return connect.NewError(connect.CodeInternal, err)
}
