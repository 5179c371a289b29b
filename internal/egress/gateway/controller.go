package gateway

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/fault"
)

// controller is one connection of a server or a command.
type controller struct {
	server  *server
	peer    *peer
	mu      sync.Mutex
	greeted bool // the controller has sent hello with a version that this process supports
	events  bool // the controller has requested events
}

// handle executes a controller's request.
func (c *controller) handle(_ context.Context, call string, body json.RawMessage, files []*os.File) (any, error) {
	if call == callAttach && c.isGreeted() {
		return c.attach(body, files)
	}
	for _, f := range files {
		f.Close()
	}
	switch call {
	case callHello:
		return c.hello(body)
	case callRetire:
		return struct{}{}, c.server.exitForReplacement()
	}
	if !c.isGreeted() {
		return nil, fault.New(fault.Invalid, "causeway_protocol", "a controller must say hello first")
	}
	switch call {
	case callUpdate:
		return c.update(body)
	case callDetach:
		return c.detach(body)
	case callAdopt:
		return c.adopt(body)
	case callList:
		return c.server.list(), nil
	case callWatch:
		c.mu.Lock()
		c.events = true
		c.mu.Unlock()
		return struct{}{}, nil
	}
	return nil, fault.Newf(fault.Invalid, "causeway_protocol", "there is no call named %q", call)
}

func (c *controller) isGreeted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted
}

func (c *controller) hello(body json.RawMessage) (any, error) {
	var theirs hello
	// A later version may add fields to its hello message.
	if err := json.Unmarshal(body, &theirs); err != nil {
		return nil, badMessage(err)
	}
	c.server.mu.Lock()
	attached := len(c.server.sandboxes)
	c.server.mu.Unlock()
	c.mu.Lock()
	c.greeted = c.server.about.common(theirs) != 0
	c.mu.Unlock()
	return welcome{hello: c.server.about, PID: os.Getpid(), Attached: attached, Confinement: c.server.report}, nil
}

func badMessage(err error) error {
	return fault.Wrap(err, fault.Invalid, "causeway_protocol", "a message to the egress gateway is malformed: "+err.Error())
}
