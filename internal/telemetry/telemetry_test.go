package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

func env(pairs ...string) func(string) string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return all[name] }
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint string
		env      func(string) string
		traces   string
		metrics  string
	}{
		"nothing":     {"", env(), "", ""},
		"setting":     {"http://a:1/", env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b"), "http://a:1/v1/traces", "http://a:1/v1/metrics"},
		"variable":    {"", env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://b/x"), "https://b/x/v1/traces", "https://b/x/v1/metrics"},
		"one signal":  {"", env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/t"), "http://c/t", ""},
		"none":        {"http://a", env("OTEL_METRICS_EXPORTER", "none"), "http://a/v1/traces", ""},
		"disabled":    {"http://a", env("OTEL_SDK_DISABLED", "true"), "", ""},
		"by protocol": {"http://a", env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), "http://a/v1/traces", "http://a/v1/metrics"},
	} {
		s, err := Read(c.endpoint, c.env)
		if err != nil || s.Traces != c.traces || s.Metrics != c.metrics {
			t.Errorf("%s: got %+v, %v", name, s, err)
		}
	}
	s, err := Read("http://a", env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = y", "OTEL_EXPORTER_OTLP_TIMEOUT", "1500"))
	if err != nil || s.TraceHeaders["api-key"] != "a b" || s.MetricHeaders["x"] != "y" || s.Timeout != 1500*time.Millisecond {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, e := range map[string]func(string) string{
		"gRPC":        env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
		"exporter":    env("OTEL_TRACES_EXPORTER", "zipkin"),
		"password":    env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://u:canary@h"),
		"no URL":      env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "canary"),
		"headers":     env("OTEL_EXPORTER_OTLP_HEADERS", "canary"),
		"timeout":     env("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
		"certificate": env("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist"),
	} {
		endpoint := "http://a"
		if e("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
			endpoint = ""
		}
		_, err := Read(endpoint, e)
		if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestSenderHidesKeys checks that neither an error nor a redirect gives away what is sent.
func TestSenderHidesKeys(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	var asked, status int
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Api-Key") != "canary" {
			t.Error("no key")
		}
		w.Header().Set("Location", other.URL)
		w.WriteHeader(status)
		_, _ = w.Write([]byte("canary"))
	}))
	s := Settings{Timeout: time.Minute}
	send := func() error {
		return (&sender{s.client(), first.URL + "/?key=canary", map[string]string{"api-key": "canary"}, 0}).send(t.Context(), struct{}{})
	}
	for code, attempts := range map[int]int{307: 1, 400: 1, 503: 2, 429: 2, 200: 1} {
		asked, status = 0, code
		err := send()
		if (err == nil) != (code == 200) || asked != attempts || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("status %d: %v after %d attempts", code, err, asked)
		}
	}
	first.Close()
	if err := send(); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("a receiver that is away: %v", err)
	}
	if elsewhere != 0 {
		t.Error("a redirect was followed")
	}
}

// TestOffIsNothing checks that without an endpoint nothing is made, and a span costs no memory.
func TestOffIsNothing(t *testing.T) {
	tracing, err := Open(t.Context(), Settings{}, "1", slog.New(slog.DiscardHandler))
	if tracing != nil || err != nil {
		t.Fatalf("got %v, %v", tracing, err)
	}
	tracing.Decided(Decision{})
	tracing.Report(t.Context(), nil)()
	if err := tracing.Close(t.Context()); err != nil {
		t.Error(err)
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		_, span := Start(ctx, "x")
		End(span, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if env := map[string]string{}; len(Environment(ctx, env)) != 0 {
		t.Error("a command without a trace has a variable")
	}
}

// TestErrorsAreCodes checks that a span of a failed action has the code of its error and not its
// text, and that a log line has the IDs.
func TestErrorsAreCodes(t *testing.T) {
	bodies := make(chan []byte, 8)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		bodies <- b.Bytes()
	}))
	defer receiver.Close()
	var lines bytes.Buffer
	log := NewLog(&lines, "json", slog.LevelInfo)
	settings, err := Read(receiver.URL, env())
	if err != nil {
		t.Fatal(err)
	}
	tracing, err := Open(t.Context(), settings, "1.2.3", log)
	if err != nil {
		t.Fatal(err)
	}
	times := metrics.NewHistogram("h", "H.", "surface", "operation", "outcome")
	req := httptest.NewRequest("GET", "/canary?canary", nil)
	tracing.ServeRequest(SurfaceV1, times, httptest.NewRecorder(), req, func(_ http.ResponseWriter, r *http.Request) {
		ctx, span := Start(r.Context(), "step")
		log.InfoContext(ctx, "line")
		End(span, errors.Join(errors.New("canary"), fault.New(fault.NotFound, "code_of_it", "canary")))
		Served(ctx, "operation", fault.New(fault.NotFound, "code_of_it", "canary"))
	})
	if err := tracing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := string(<-bodies)
	if strings.Contains(sent, "canary") || !strings.Contains(sent, "code_of_it") || !strings.Contains(sent, "v1 operation") || !strings.Contains(sent, "1.2.3") {
		t.Error(sent)
	}
	var line struct {
		Trace string `json:"trace_id"`
	}
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Trace == "" || !strings.Contains(sent, line.Trace) {
		t.Errorf("line %s: %v", lines.String(), err)
	}
	if f := times.Family(); len(f.Samples) != 1 || f.Samples[0].Labels[2].Value != "code_of_it" {
		t.Errorf("got %+v", f)
	}
}
