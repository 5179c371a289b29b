package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
)

const (
	// maxWatchers limits the watchers that are not bound to a stream. Clients may forget to remove
	// these.
	maxWatchers = 256
	// maxPending limits the events that a watcher buffers until a client fetches them.
	maxPending = 16_384
)

// watchers are the watchers that clients poll.
type watchers struct {
	mu     sync.Mutex
	closed bool
	byID   map[string]*collector
}

func newWatchers() watchers { return watchers{byID: map[string]*collector{}} }

// collector buffers the events of a watcher.
type collector struct {
	*watched

	mu      sync.Mutex
	pending []*pb.FilesystemEvent
	err     error
}

// collect buffers events until the watcher ends.
func (c *collector) collect() {
	for e := range c.Events() {
		event := c.event(e)
		c.mu.Lock()
		if len(c.pending) < maxPending {
			c.pending = append(c.pending, event)
		} else {
			c.err = connect.NewError(connect.CodeDataLoss, fmt.Errorf("more than %d events were not fetched; some are lost", maxPending))
		}
		c.mu.Unlock()
	}
	if err := watchError(c.Err()); err != nil {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
	}
}

// take returns the buffered events. It returns the watcher's error only after all events were
// taken.
func (c *collector) take() ([]*pb.FilesystemEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.pending
	c.pending = nil
	if len(events) > 0 {
		return events, nil
	}
	return nil, c.err
}

// close stops all watchers and reports whether this is the first call.
func (ws *watchers) close() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	first := !ws.closed
	ws.closed = true
	for id, c := range ws.byID {
		c.Close()
		delete(ws.byID, id)
	}
	return first
}

// add stores a collector and returns its new ID.
func (ws *watchers) add(c *collector) (string, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return "", connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is ending"))
	}
	if len(ws.byID) >= maxWatchers {
		return "", connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d watchers; remove some", maxWatchers))
	}
	id := "w" + strings.ToLower(rand.Text())
	ws.byID[id] = c
	return id, nil
}

// find returns the collector with an ID.
func (ws *watchers) find(id string) (*collector, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	c, ok := ws.byID[id]
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
	}
	return c, nil
}

// CreateWatcher starts collecting changes of a directory.
func (s *Service) CreateWatcher(_ context.Context, req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	w, err := s.open(req.Header(), req.Msg)
	if err != nil {
		return nil, err
	}
	c := &collector{watched: w}
	id, err := s.watchers.add(c)
	if err != nil {
		w.Close()
		return nil, err
	}
	go c.collect()
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns the changes since the last call.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	c, err := s.watchers.find(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	events, err := c.take()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher stops a watcher.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	c, err := s.watchers.find(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	s.watchers.mu.Lock()
	delete(s.watchers.byID, req.Msg.GetWatcherId())
	s.watchers.mu.Unlock()
	c.Close()
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}
