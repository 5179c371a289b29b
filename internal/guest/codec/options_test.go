package codec_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// A service with these options ignores unknown fields, rejects a body above the limit, and never
// compresses, even if the client accepts gzip.
func TestOptionsLimitBodyAndDisableCompression(t *testing.T) {
	const procedure, limit = "/process.Process/Start", 200
	handler := connect.NewUnaryHandler(procedure, func(_ context.Context, req *connect.Request[pb.StartRequest]) (*connect.Response[pb.StartResponse], error) {
		out := &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(strings.Repeat(req.Msg.GetTag(), 5000))}
		return connect.NewResponse(&pb.StartResponse{Event: data(&pb.ProcessEvent_DataEvent{Output: out})}), nil
	}, codec.Options(limit)...)
	for name, c := range map[string]struct {
		body   string
		status int
		want   string // part of the answer
	}{
		"unknown field":  {`{"tag":"x","later":1}`, http.StatusOK, `{"event":{"data":{"stdout":"eHh4`},
		"at limit":       {`{"tag":"x"}` + strings.Repeat(" ", limit-11), http.StatusOK, `"stdout"`},
		"too long":       {`{"tag":"x"}` + strings.Repeat(" ", limit-10), http.StatusTooManyRequests, "resource_exhausted"},
		"not UTF-8":      {"{\"tag\":\"\xff\"}", http.StatusBadRequest, "is not UTF-8"},
		"no JSON object": {"", http.StatusBadRequest, "an empty body is not a JSON object"},
	} {
		r := httptest.NewRequest(http.MethodPost, procedure, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		answer, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != c.status || !strings.Contains(string(answer), c.want) || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: got %d %v %.200s, want %d with %q, uncompressed", name, w.Code, w.Header(), answer, c.status, c.want)
		}
	}
}
