package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakeFlowLog is a sandbox with many flows.
type fakeFlowLog struct {
	fakeSandbox
	NetworkLog
	records int
	path    string
	asked   []string
	failure error // after all records
	read    int
}

func (f *fakeFlowLog) Asked(context.Context, sandbox.Principal, string, time.Time) ([]string, error) {
	return f.asked, nil
}

func (f *fakeFlowLog) Flows(_ context.Context, _ sandbox.Principal, _ string, filter flows.Filter, _ bool, yield func(egress.Record) error) error {
	for seq := filter.After + 1; seq <= uint64(f.records); seq++ {
		f.read++
		if err := yield(egress.Record{Seq: seq, Path: f.path}); err != nil {
			return err
		}
	}
	return f.failure
}

func (f *fakeFlowLog) get(t *testing.T, after uint64) (string, int) {
	t.Helper()
	h := New(Deps{
		Finder: f, NetworkLog: f, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "v9",
		Auth: func(*http.Request) (sandbox.Principal, error) { return sandbox.Principal{KeyID: "k1"}, nil },
	})
	w := &writeRecorder{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("/v1/sandboxes/i1/network/log?after=%d", after), nil))
	if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "application/json" {
		t.Fatalf("GET /v1/sandboxes/i1/network/log: got %d %q %s", w.Code, kind, w.Body)
	}
	return w.Body.String(), w.n
}

// writeRecorder remembers the longest write.
type writeRecorder struct {
	*httptest.ResponseRecorder
	n int
}

func (l *writeRecorder) Write(b []byte) (int, error) {
	l.n = max(l.n, len(b))
	return l.ResponseRecorder.Write(b)
}

// Records are returned in pages, and a client that continues after the last record gets all of
// them.
func TestFlowsAreReturnedInPages(t *testing.T) {
	long := strings.Repeat("<\x01", 4<<10) // each takes six bytes
	for _, f := range []*fakeFlowLog{
		{}, {asked: []string{`"records":[]`, "a.test"}}, {records: 1, path: `","records":[]`},
		{records: 2*maxFlows + 5, path: "/a"}, {records: 1000, path: long}, {records: 2, path: strings.Repeat(long, 800)},
	} {
		next, answers := uint64(0), 0
		for {
			f.read = 0
			text, piece := f.get(t, next)
			var list api.FlowList
			in := json.NewDecoder(strings.NewReader(text))
			in.DisallowUnknownFields()
			if err := in.Decode(&list); err != nil || list.Records == nil || strings.Join(list.Asked, " ") != strings.Join(f.asked, " ") {
				t.Fatalf("%d records: %v, %.200s", f.records, err, text)
			}
			if answers++; len(list.Records) == 0 {
				break
			}
			for _, r := range list.Records {
				if next++; r.Seq != next || r.Path != f.path {
					t.Fatalf("%d records: got %d, want %d", f.records, r.Seq, next)
				}
			}
			if len(list.Records) > maxFlows || len(list.Records) > 1 && len(text) > maxFlowBytes+1<<10 || f.read > len(list.Records)+1 {
				t.Errorf("%d records: an answer of %d, %d bytes, of %d that were read", f.records, len(list.Records), len(text), f.read)
			}
			if one := len(text) / len(list.Records); piece > 2*one+1<<10 {
				t.Errorf("%d records: %d bytes at once", f.records, piece)
			}
		}
		if int(next) != f.records || f.records > maxFlows && answers < 3 {
			t.Errorf("%d records: got %d in %d answers", f.records, next, answers)
		}
	}
}

// An incomplete list is not taken for a complete one.
func TestIncompleteFlowListIsInvalid(t *testing.T) {
	f := &fakeFlowLog{records: 3, path: "/a", failure: errors.New("damaged")}
	text, _ := f.get(t, 0)
	if json.Valid(bytes.TrimSpace([]byte(text))) || !strings.HasPrefix(text, `{"records":[{`) {
		t.Errorf("answer of a damaged log: got %s", text)
	}
}
