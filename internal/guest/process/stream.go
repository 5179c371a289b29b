package process

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/guest/keepalive"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// errTimeLimit is the error of a command that was killed at its time limit.
var errTimeLimit = errors.New("the command ran longer than its time limit and was killed")

// Start runs a process and streams its output until it ends. The process outlives the call. Only
// its time limit, a signal or its own end stop it.
func (s *Service) Start(ctx context.Context, req *connect.Request[pb.StartRequest], stream *connect.ServerStream[pb.StartResponse]) error {
	user, err := s.cfg().Accounts.ByHeader(req.Header())
	if err != nil {
		return userError(err)
	}
	if err := utf8text.UnescapeStart(req.Header(), req.Msg); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	delay, err := guestwire.WaitDelay(req.Header())
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(guestwire.WaitDelayHeader+" is a number of milliseconds"))
	}
	p, first, err := s.launch(ctx, user, req.Msg, delay)
	if err != nil {
		return err
	}
	stream.ResponseHeader().Set(guestwire.StdinHeader, guestwire.StdinBody)
	f := follower{process: p, listener: first, owner: true, closing: s.closing, keepalive: keepalive.Interval(req.Header()), writer: resultOf(ctx)}
	err = f.run(ctx, func(e *pb.ProcessEvent) error { return stream.Send(&pb.StartResponse{Event: e}) })
	if err != nil && guestwire.Hangup(req.Header()) {
		p.hangUp()
	}
	return err
}

// Connect streams a process's output from now on, or how it ended.
func (s *Service) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest], stream *connect.ServerStream[pb.ConnectResponse]) error {
	p, err := s.table.find(req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	stream.ResponseHeader().Set(guestwire.StdinHeader, guestwire.StdinBody)
	f := follower{process: p, listener: p.output.join(), closing: s.closing, keepalive: keepalive.Interval(req.Header()), writer: resultOf(ctx)}
	return f.run(ctx, func(e *pb.ProcessEvent) error { return stream.Send(&pb.ConnectResponse{Event: e}) })
}

// follower streams one process.
type follower struct {
	process   *process
	listener  *listener
	owner     bool // its time limit is that of the process
	closing   <-chan struct{}
	keepalive time.Duration
	writer    *batchedWriter
}

func (f *follower) run(ctx context.Context, send func(*pb.ProcessEvent) error) error {
	defer f.process.output.leave(f.listener)
	start := &pb.ProcessEvent_StartEvent{Pid: uint32(f.process.pid)}
	if err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: start}}); err != nil {
		return err
	}
	idle := time.NewTimer(f.keepalive)
	defer idle.Stop()
	left := ctx.Done()
	for {
		select {
		case e := <-f.listener.events:
			if e.GetEnd() != nil {
				return f.end(e, send)
			}
			f.writer.setMore(len(f.listener.events) > 0)
			if err := send(e); err != nil {
				return err
			}
		case <-idle.C:
			f.writer.setMore(false)
			beat := &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}
			if err := send(&pb.ProcessEvent{Event: beat}); err != nil {
				return err
			}
		case <-left:
			late := errors.Is(ctx.Err(), context.DeadlineExceeded)
			if !late || !f.owner {
				return contextError(ctx, late)
			}
			// The process has its own timer for the same limit. If the sandbox was saved in
			// between, the process has more time.
			left = nil
			continue
		case <-f.closing:
			// A clean end would look like the end of the command. Clients recognise a cut
			// connection as the end of the sandbox.
			panic(http.ErrAbortHandler)
		}
		idle.Reset(f.keepalive)
	}
}

// end sends the last event. A process that was killed at its time limit gives an error instead of a
// result.
func (f *follower) end(e *pb.ProcessEvent, send func(*pb.ProcessEvent) error) error {
	select {
	case <-f.closing:
		panic(http.ErrAbortHandler)
	default:
	}
	if f.owner && f.process.expired.Load() {
		return connect.NewError(connect.CodeDeadlineExceeded, errTimeLimit)
	}
	f.writer.setMore(true) // the end of the stream follows
	return send(e)
}

func contextError(ctx context.Context, late bool) error {
	if late {
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}
