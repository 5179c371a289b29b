package telemetry

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLog returns a log in the format text or json. Lines about a request that is traced have the IDs
// of its trace.
func NewLog(to io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(to, options)
	if format == "json" {
		h = slog.NewJSONHandler(to, options)
	}
	return slog.New(&tracedHandler{h})
}

// tracedHandler adds the IDs of the context's trace to lines.
type tracedHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h *tracedHandler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *tracedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &tracedHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *tracedHandler) WithGroup(name string) slog.Handler {
	return &tracedHandler{h.Handler.WithGroup(name)}
}
