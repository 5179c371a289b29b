package v1

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// Queue describes the queue of starts.
type Queue interface {
	Queue(ctx context.Context, caller sandbox.Principal) (lifecycle.Queue, error)
}

// queueHandlers serves the queue of starts, and the metrics of the server.
type queueHandlers struct {
	starts   Queue
	packages PackageFigures // may be nil
}

func (h *queueHandlers) register(r *registry) {
	register(r, op("queue", "GET", "/queue", "Get the number of sandboxes that start and of requests that wait"), h.queue)
	register(r, op("metrics", "GET", "/metrics", "Get figures of the queue and of the package cache in the Prometheus text format"), h.metricsText)
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
	q, err := h.starts.Queue(ctx, caller)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"crannog_starts_at_once", "gauge", "Sandboxes that may start at once now.", float64(q.AtOnce)},
		{"crannog_starts_running", "gauge", "Sandboxes that are being started for callers.", float64(q.Starting)},
		{"crannog_starts_background", "gauge", "Sandboxes that are being made ready for the warm pool.", float64(q.Background)},
		{"crannog_starts_waiting", "gauge", "Requests that wait for their sandbox to be started.", float64(q.Waiting)},
		{"crannog_start_seconds", "gauge", "Average time of one start.", q.ServiceTime.Seconds()},
		{"crannog_start_wait_seconds", "gauge", "Expected wait of a new request.", q.Wait.Seconds()},
		{"crannog_starts_admitted_total", "counter", "Requests admitted.", float64(q.Totals.Admitted)},
		{"crannog_starts_completed_total", "counter", "Starts that succeeded.", float64(q.Totals.Completed)},
		{"crannog_starts_refused_total", "counter", "Requests refused because too many waited.", float64(q.Totals.Refused)},
		{"crannog_starts_left_total", "counter", "Requests whose caller left before their turn.", float64(q.Totals.Left)},
	} {
		head(&b, m.name, m.kind, m.help)
		fmt.Fprintf(&b, "%s %s\n", m.name, strconv.FormatFloat(m.value, 'g', -1, 64))
	}
	if h.packages != nil {
		usage, err := h.packages.Usage()
		if err != nil {
			return nil, err
		}
		writePackageMetrics(&b, h.packages.Answers(), usage)
	}
	return &textOutput{"text/plain; version=0.0.4; charset=utf-8", b.Bytes()}, nil
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
