package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Command is the name of a command's span.
const Command = "command"

const (
	// keepCommand is how long an ended command is remembered: flows reach the audit log, from which
	// decisions are read, with some delay.
	keepCommand = time.Minute
	// maxCommands bounds the remembered commands of all sandboxes.
	maxCommands = 4096
)

// commandSpans remembers which commands ran in a sandbox, for the spans of decisions. It implements
// sdk.SpanProcessor.
type commandSpans struct {
	mu    sync.Mutex
	all   map[trace.SpanID]*commandSpan
	order []trace.SpanID // of the start
}

type commandSpan struct {
	sandbox    string
	context    trace.SpanContext
	start, end time.Time // end is zero while it runs
}

func newCommandSpans() *commandSpans {
	return &commandSpans{all: map[trace.SpanID]*commandSpan{}}
}

// OnStart implements sdk.SpanProcessor.
func (c *commandSpans) OnStart(_ context.Context, s sdk.ReadWriteSpan) {
	if s.Name() != Command {
		return
	}
	sandbox, _ := valueOf(s.Attributes(), Sandbox)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(s.StartTime())
	id := s.SpanContext().SpanID()
	c.all[id] = &commandSpan{sandbox: sandbox, context: s.SpanContext(), start: s.StartTime()}
	c.order = append(c.order, id)
}

// drop forgets the oldest commands while there are too many, and those that ended long ago. The
// caller holds the lock.
func (c *commandSpans) drop(now time.Time) {
	for len(c.order) > 0 {
		first := c.all[c.order[0]]
		if len(c.order) < maxCommands && (first.end.IsZero() || now.Sub(first.end) < keepCommand) {
			return
		}
		delete(c.all, c.order[0])
		c.order = c.order[1:]
	}
}

// OnEnd implements sdk.SpanProcessor.
func (c *commandSpans) OnEnd(s sdk.ReadOnlySpan) {
	if s.Name() != Command {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.all[s.SpanContext().SpanID()]; known != nil {
		known.end = s.EndTime()
	}
}

// at returns the commands that ran in a sandbox at a time.
func (c *commandSpans) at(sandbox string, when time.Time) []trace.SpanContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []trace.SpanContext
	for _, id := range c.order {
		s := c.all[id]
		if s.sandbox == sandbox && !when.Before(s.start) && (s.end.IsZero() || !when.After(s.end)) {
			found = append(found, s.context)
		}
	}
	return found
}

// Shutdown implements sdk.SpanProcessor.
func (c *commandSpans) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (c *commandSpans) ForceFlush(context.Context) error { return nil }

func valueOf(list []attribute.KeyValue, key attribute.Key) (string, bool) {
	for _, a := range list {
		if a.Key == key {
			return a.Value.AsString(), true
		}
	}
	return "", false
}
