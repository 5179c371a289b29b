// Package telemetry owns what a server tells the tools that watch it: traces and figures over OTLP,
// and logs with the IDs of traces. It is off unless an endpoint is configured, and then a span costs
// one look-up in a context. No span has text that a sandbox chose: no command line, path, query,
// host name, output or value of a secret.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/fault"
)

// Attributes of spans. docs/reference/telemetry.md describes them.
const (
	Sandbox  = attribute.Key("crannog.sandbox")
	Engine   = attribute.Key("crannog.engine")
	Source   = attribute.Key("crannog.source")
	Surface  = attribute.Key("crannog.surface")
	How      = attribute.Key("crannog.how")
	ExitCode = attribute.Key("crannog.exit_code")
	Port     = attribute.Key("crannog.port")
	Effect   = attribute.Key("crannog.effect")
	Rule     = attribute.Key("crannog.rule")
	Flow     = attribute.Key("crannog.flow")
	Code     = attribute.Key("error.type")
)

// scope is the name of the instrumentation.
const scope = "github.com/crannog/crannog"

// Start starts a span below that of the context. Without a recorded span in the context it does
// nothing: only the server's frontends start traces.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, none
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(attributes...))
}

// none is a span that is not recorded.
var none = trace.SpanFromContext(context.Background())

// End ends a span with the outcome of what it describes. The message of an error may quote paths
// and command lines, so the span gets only the error's code.
func End(span trace.Span, err error) {
	if span.IsRecording() && err != nil {
		code := CodeOf(err)
		span.SetStatus(codes.Error, code)
		span.SetAttributes(Code.String(code))
	}
	span.End()
}

// CodeOf returns the code of an error, or its kind: a word from a list, which quotes nothing.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	if code := fault.CodeOf(err); code != "" {
		return code
	}
	return string(fault.KindOf(err))
}

// Set sets attributes of the context's span.
func Set(ctx context.Context, attributes ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attributes...)
	}
}
