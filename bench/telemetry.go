package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/crannog/crannog"
)

// telemetryFigures compares a call of exec on a server without telemetry with one on a server that
// sends every span and its metrics.
func telemetryFigures(ctx context.Context, b *bench) (err error) {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an error means that the server has ended
	}))
	defer receiver.Close()
	const off, on = "without telemetry", "with traces and metrics"
	var all []contender
	for name, args := range map[string][]string{
		off: {"--pool", "off"}, on: {"--pool", "off", "--otlp-endpoint", receiver.URL},
	} {
		srv, err := b.serve(ctx, b.crannog, "telemetry-"+map[string]string{off: "off", on: "on"}[name], args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, srv.close()) }()
		sb, err := srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
		if err != nil {
			return err
		}
		all = append(all, byCall(name, sb, "true"))
	}
	s, err := race(ctx, 20*b.n, all...)
	if err != nil {
		return err
	}
	sec := table("telemetry", "true in a live sandbox, POST /v1/…/exec", "ms", s, off, on)
	sec.against(off)
	sec.target(on, "≤ 1.01 × without", func(r row) bool { return r.Ratio <= 1.01 })
	b.report.add(sec)
	return nil
}
