package v1

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Queue describes the queue of starts.
type Queue interface {
	Queue(ctx context.Context, caller sandbox.Principal) (lifecycle.Queue, error)
}

// Figures are the metrics of a server.
type Figures interface {
	Families(ctx context.Context) ([]metrics.Family, error)
}

// queueHandlers serves the queue of starts, and the metrics of the server.
type queueHandlers struct {
	starts  Queue
	figures Figures // may be nil
}

func (h *queueHandlers) register(r *registry) {
	register(r, op("queue", "GET", "/queue", "Get the number of sandboxes that start and of requests that wait"), h.queue)
	register(r, op("metrics", "GET", "/metrics", "Get the figures of the server in the Prometheus text format"), h.metricsText)
}

type queueOutput struct{ Body api.Queue }

func (h *queueHandlers) queue(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*queueOutput, error) {
	q, err := h.starts.Queue(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := api.Queue{
		AtOnce: q.AtOnce, Starting: q.Starting, Background: q.Background, Waiting: q.Waiting, MaxWaiting: q.MaxWaiting,
		ServiceSeconds: q.ServiceTime.Seconds(), WaitSeconds: q.Wait.Seconds(),
		Admitted: q.Totals.Admitted, Completed: q.Totals.Completed, Refused: q.Totals.Refused, Left: q.Totals.Left,
		Requests: make([]api.QueuedStart, 0, len(q.Positions)),
	}
	for _, p := range q.Positions {
		out.Requests = append(out.Requests, api.QueuedStart{
			RequestID: p.Label, SandboxID: p.Sandbox, Place: p.Number, WaitedSeconds: p.Waited.Seconds(), ExpectedSeconds: p.Expected.Seconds(),
		})
	}
	return &queueOutput{out}, nil
}

type textOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// metricsText writes the figures in the Prometheus text format.
func (h *queueHandlers) metricsText(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*textOutput, error) {
	if err := caller.Check(); err != nil {
		return nil, err
	}
	if h.figures == nil {
		return nil, fault.New(fault.Unsupported, "no_metrics", "this server has no metrics")
	}
	families, err := h.figures.Families(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := metrics.WriteText(&b, families); err != nil {
		return nil, err
	}
	return &textOutput{metrics.ContentType, b.Bytes()}, nil
}

// boundByClient bounds a request by the time that its client is willing to wait.
func boundByClient(r *http.Request) (*http.Request, context.CancelFunc, error) {
	text := r.Header.Get(api.TimeoutHeader)
	if text == "" {
		return r, func() {}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 1 || ms > int64(maxWait/time.Millisecond) {
		return nil, nil, fault.Newf(fault.Invalid, "timeout_header_invalid", "%s is a number of milliseconds from 1 to %d", api.TimeoutHeader, int64(maxWait/time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
	return r.WithContext(ctx), cancel, nil
}

// maxWait is the longest wait that a client may request.
const maxWait = 365 * 24 * time.Hour
