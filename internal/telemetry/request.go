package telemetry

import (
	"context"
	"maps"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Surfaces through which requests come.
const (
	SurfaceV1      = "v1"
	SurfaceE2B     = "e2b"
	SurfaceSandbox = "sandbox" // into a sandbox
)

// request is what the handler of a request tells about it.
type request struct{ operation, code string }

type requestKey struct{}

// Served names the operation of the context's request, and its outcome. The name is that of a
// route, never the request's path.
func Served(ctx context.Context, operation string, err error) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.operation, r.code = operation, CodeOf(err)
	}
}

// traceContext is the W3C format of a trace's IDs in headers.
var traceContext = propagation.TraceContext{}

// ServeRequest serves a request of a surface: it counts the request, and with tracing, gives it a
// span that continues the caller's trace. A request into a sandbox has the span's IDs in its
// headers; without tracing the caller's pass unchanged.
func (t *Tracing) ServeRequest(surface string, counted *metrics.Vector, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	started := time.Now()
	about := &request{}
	ctx := context.WithValue(r.Context(), requestKey{}, about)
	span := none
	if t != nil {
		ctx, span = t.provider.Tracer(scope).Start(
			traceContext.Extract(ctx, propagation.HeaderCarrier(r.Header)), surface,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(Surface.String(surface)),
		)
	}
	r = r.WithContext(ctx)
	if surface == SurfaceSandbox && span.SpanContext().IsValid() {
		traceContext.Inject(ctx, propagation.HeaderCarrier(r.Header))
	}
	// A panic ends the connection; the request still counts.
	defer func() {
		if about.operation != "" {
			span.SetName(surface + " " + about.operation)
		}
		if surface != SurfaceSandbox {
			counted.Observe(time.Since(started), surface, orOther(about.operation), outcome(about.code))
		}
		if about.code != "" {
			span.SetAttributes(Code.String(about.code))
		}
		span.End()
	}()
	serve(w, r)
}

func orOther(operation string) string {
	if operation == "" {
		return metrics.Other
	}
	return operation
}

// outcome returns the label of a code. Codes of errors are words from a list of ours.
func outcome(code string) string {
	if code == "" {
		return "ok"
	}
	return code
}

// variable is the name under which OpenTelemetry's libraries look for a trace's IDs.
const variable = "TRACEPARENT"

// Environment returns the environment of a command with the IDs of the context's trace, so that a
// program with OpenTelemetry continues it. It returns the environment unchanged without a trace, or
// if the caller has set the variable.
func Environment(ctx context.Context, env map[string]string) map[string]string {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return env
	}
	if _, set := env[variable]; set {
		return env
	}
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	with := make(map[string]string, len(env)+1)
	maps.Copy(with, env)
	with[variable] = carrier["traceparent"]
	return with
}
