package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxServing is the maximum number of concurrent requests of one peer: all approval requests of
	// a hundred sandboxes.
	maxServing = 100 * maxOpenApprovals
	// writeTimeout is how long a peer may leave its socket full before its connection is closed, so
	// that it cannot block the others.
	writeTimeout = 10 * time.Second
)

// callCancel is the notice that the peer no longer waits for a request.
const callCancel = "cancel"

type cancelBody struct {
	ID uint64 `json:"id"`
}

// handler handles a request or a notice. It owns the files.
type handler func(ctx context.Context, call string, body json.RawMessage, files []*os.File) (any, error)

// peer is one end of a connection. Both ends may send requests.
type peer struct {
	conn   *net.UnixConn
	reader reader
	handle handler

	writing sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan *frame
	serving map[uint64]context.CancelFunc
	err     error // why it ended

	done    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

var errGone = fault.New(fault.Unavailable, "causeway_lost", "the process that holds the sandboxes' networks is gone").
	WithHint("all their connections have ended; create the sandboxes again")

// newPeer prepares one end; serve runs it.
func newPeer(conn *net.UnixConn, takesFiles bool, h handler) *peer {
	p := &peer{
		conn: conn, reader: reader{conn: conn, takes: takesFiles}, handle: h,
		waiting: map[uint64]chan *frame{}, serving: map[uint64]context.CancelFunc{}, done: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// serve reads until the connection ends, and returns when all its requests have ended. Its error is
// never nil.
func (p *peer) serve() error {
	var err error
	for {
		var f *frame
		if f, err = p.reader.next(); err != nil {
			break
		}
		if err = p.take(f); err != nil {
			break
		}
	}
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	p.cancel()
	p.conn.Close()
	close(p.done)
	p.workers.Wait()
	return err
}

// take dispatches one frame. An error ends the connection, because a peer that violates the
// protocol is not genuine.
func (p *peer) take(f *frame) error {
	switch {
	case f.Call == "":
		if len(f.files) > 0 {
			f.closeFiles()
			return errors.New("a reply with files")
		}
		p.mu.Lock()
		reply, ok := p.waiting[f.ID]
		delete(p.waiting, f.ID)
		p.mu.Unlock()
		if ok { // the channel is buffered, because the caller may have returned
			reply <- f
		}
		return nil
	case f.Call == callCancel:
		f.closeFiles()
		var body cancelBody
		if err := strict(f.Body, &body); err != nil {
			return err
		}
		p.mu.Lock()
		if stop := p.serving[body.ID]; stop != nil {
			stop()
		}
		p.mu.Unlock()
		return nil
	case f.ID == 0:
		// Notices are handled in the order in which they arrive.
		_, err := p.handle(p.ctx, f.Call, f.Body, f.files)
		return err
	}
	ctx, err := p.begin(f.ID)
	if err == nil {
		p.workers.Go(func() { p.answer(ctx, f) })
		return nil
	}
	f.closeFiles()
	if fault.KindOf(err) != fault.Exhausted {
		return err
	}
	// A sandbox can cause this error, so it does not end the connection.
	return p.send(&frame{ID: f.ID, Error: toWire(err)}, nil)
}

// begin registers a request.
func (p *peer) begin(id uint64) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving[id] != nil {
		return nil, errors.New("two requests with one number")
	}
	if len(p.serving) >= maxServing {
		return nil, fault.New(fault.Exhausted, "causeway_busy", "too many requests at once")
	}
	ctx, stop := context.WithCancel(p.ctx)
	p.serving[id] = stop
	return ctx, nil
}

func (p *peer) answer(ctx context.Context, f *frame) {
	out, err := p.handle(ctx, f.Call, f.Body, f.files)
	p.mu.Lock()
	p.serving[f.ID]()
	delete(p.serving, f.ID)
	p.mu.Unlock()
	reply := &frame{ID: f.ID}
	if err == nil {
		reply.Body, err = json.Marshal(out)
	}
	if err != nil {
		reply.Body, reply.Error = nil, toWire(err)
	}
	if p.send(reply, nil) != nil {
		// Otherwise the requester would wait for ever.
		p.conn.Close()
	}
}

// send writes one frame. If writing fails, the connection is closed.
func (p *peer) send(f *frame, files []*os.File) error {
	data, err := encode(f)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	err = p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		err = writeFrame(p.conn, data, files)
	}
	if err != nil {
		p.conn.Close()
		return errGone
	}
	return nil
}

// notify sends a message without an answer.
func (p *peer) notify(call string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return p.send(&frame{Call: call, Body: data}, nil)
}

// call sends a request and waits for the reply. The files remain the caller's.
func (p *peer) call(ctx context.Context, call string, body, into any, files ...*os.File) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	reply := make(chan *frame, 1)
	p.mu.Lock()
	p.last++
	id := p.last
	p.waiting[id] = reply
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
	}()
	if err := p.send(&frame{ID: id, Call: call, Body: data}, files); err != nil {
		return err
	}
	select {
	case f := <-reply:
		return f.result(into)
	case <-ctx.Done():
		_ = p.notify(callCancel, cancelBody{ID: id})
		return ctx.Err()
	case <-p.done:
	}
	select {
	case f := <-reply: // the reply arrived just before the end
		return f.result(into)
	default:
		return errGone
	}
}

// result returns the result or error of a reply.
func (f *frame) result(into any) error {
	if f.Error != nil {
		return f.Error.fault()
	}
	if into == nil {
		return nil
	}
	return strict(f.Body, into)
}
