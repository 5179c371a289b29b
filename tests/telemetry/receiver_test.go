package telemetry_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// receiver is an OpenTelemetry receiver that keeps all messages.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	bodies   []string
	keys     []string // the header of the key, of each message
	received chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{received: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Header.Get("Content-Type") != "application/json" || req.URL.Path != "/v1/traces" && req.URL.Path != "/v1/metrics" {
			t.Errorf("%s %s: %v", req.Method, req.URL, err)
		}
		r.mu.Lock()
		r.bodies, r.keys = append(r.bodies, string(body)), append(r.keys, req.Header.Get("Api-Key"))
		r.mu.Unlock()
		select {
		case r.received <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// span is a received span.
type span struct {
	TraceID    string `json:"traceId"`
	SpanID     string `json:"spanId"`
	Parent     string `json:"parentSpanId"`
	Name       string `json:"name"`
	Start      string `json:"startTimeUnixNano"`
	End        string `json:"endTimeUnixNano"`
	Attributes []struct {
		Key   string `json:"key"`
		Value struct {
			String string `json:"stringValue"`
			Int    string `json:"intValue"`
		} `json:"value"`
	} `json:"attributes"`
}

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String + a.Value.Int
		}
	}
	return ""
}

func (r *receiver) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.bodies, "\n")
}

// spans returns all spans so far.
func (r *receiver) spans(t *testing.T) (all []span) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies {
		var message struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []span `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		}
		if err := json.Unmarshal([]byte(body), &message); err != nil {
			t.Fatal(err)
		}
		for _, res := range message.ResourceSpans {
			for _, scope := range res.ScopeSpans {
				all = append(all, scope.Spans...)
			}
		}
	}
	return all
}

// wait returns the first span that fits, which may be still to come.
func (r *receiver) wait(t *testing.T, what string, fits func(span) bool) span {
	t.Helper()
	late := hosttest.Late()
	for {
		for _, s := range r.spans(t) {
			if fits(s) {
				return s
			}
		}
		select {
		case <-r.received:
		case <-late:
			var names []string
			for _, s := range r.spans(t) {
				names = append(names, s.Name)
			}
			t.Fatalf("no span: %s; there are %q", what, names)
		}
	}
}
