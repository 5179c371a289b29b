package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Tracing sends traces and figures. A nil Tracing sends nothing.
type Tracing struct {
	provider *sdk.TracerProvider
	resource *resource.Resource
	settings Settings
	figures  *sender
	log      *slog.Logger
	started  time.Time
	commands *commandSpans
	failures *failureLog
}

// retryPause is the pause before the only retry of a message.
const retryPause = time.Second

// Open starts sending. It returns nil if the settings send nothing.
func Open(ctx context.Context, s Settings, version string, log *slog.Logger) (*Tracing, error) {
	if !s.On() {
		return nil, nil
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "crannog"), attribute.String("service.version", version),
	), resource.WithFromEnv())
	if err != nil {
		// The error quotes the variable.
		return nil, settingFault("OTEL_RESOURCE_ATTRIBUTES", "is not a list of name=value, separated by commas", "write special characters as %XX")
	}
	t := &Tracing{resource: about, settings: s, log: log, started: time.Now(), commands: newCommandSpans(), failures: &failureLog{log: log}}
	client := s.client()
	options := []sdk.TracerProviderOption{sdk.WithResource(about), sdk.WithSpanProcessor(t.commands)}
	if s.Traces != "" {
		options = append(options, sdk.WithBatcher(&exporter{&sender{client, s.Traces, s.TraceHeaders, retryPause}, t.failures}))
	} else {
		options = append(options, sdk.WithSampler(sdk.NeverSample()))
	}
	t.provider = sdk.NewTracerProvider(options...)
	if s.Metrics != "" {
		t.figures = &sender{client, s.Metrics, s.MetricHeaders, retryPause}
	}
	return t, nil
}

// Report sends figures at intervals until the returned function is called, which sends them once
// more.
func (t *Tracing) Report(ctx context.Context, collect func(context.Context) ([]metrics.Family, error)) func() {
	if t == nil || t.figures == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(t.settings.Interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				t.report(ctx, collect)
			}
		}
	})
	return func() {
		cancel()
		ended.Wait()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer done()
		t.report(last, collect)
	}
}

func (t *Tracing) report(ctx context.Context, collect func(context.Context) ([]metrics.Family, error)) {
	families, err := collect(ctx)
	if err == nil {
		err = t.figures.send(ctx, encodeMetrics(t.resource, families, t.started, time.Now()))
	}
	t.failures.note(ctx, "figures", err)
}

// closeTimeout limits how long the end of a server waits for the receiver.
const closeTimeout = 3 * time.Second

// Close sends what remains.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.log.Warn("the last spans were not sent", "err", err)
		return nil
	}
	return err
}

// Decision is a decision of the egress gateway about a flow of a sandbox.
type Decision struct {
	Sandbox, Flow, Effect, Rule string
	At                          time.Time
	Took                        time.Duration
}

// Decided adds a span for a decision. It belongs to the trace of the command that ran in the sandbox
// then, if exactly one did; which program of a sandbox made a connection is not known.
func (t *Tracing) Decided(d Decision) {
	if t == nil {
		return
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(d.At), trace.WithAttributes(
		Sandbox.String(d.Sandbox), Flow.String(d.Flow), Effect.String(d.Effect), Rule.String(d.Rule),
	)}
	ctx := context.Background()
	switch running := t.commands.at(d.Sandbox, d.At); len(running) {
	case 0:
	case 1:
		ctx = trace.ContextWithSpanContext(ctx, running[0])
	default:
		for _, c := range running {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: c}))
		}
	}
	_, span := t.provider.Tracer(scope).Start(ctx, "egress.decision", options...)
	span.End(trace.WithTimestamp(d.At.Add(d.Took)))
}

// exporter sends spans. It implements sdk.SpanExporter.
type exporter struct {
	*sender
	failures *failureLog
}

// ExportSpans implements sdk.SpanExporter. The SDK would print an error to standard error, without
// limit.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	e.failures.note(ctx, "spans", e.send(ctx, encodeSpans(spans)))
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// failureLog logs the first failure of a row and its end, so that a receiver that is away does not
// fill the log.
type failureLog struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]bool
}

func (f *failureLog) note(ctx context.Context, what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing == nil {
		f.failing = map[string]bool{}
	}
	before := f.failing[what]
	f.failing[what] = err != nil
	switch {
	case err != nil && !before:
		f.log.WarnContext(ctx, "telemetry is not received, and lost until it is", "what", what, "err", err)
	case err == nil && before:
		f.log.InfoContext(ctx, "telemetry is received again", "what", what)
	}
}
