package crannog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// newHostileSandbox returns a sandbox whose guest an attacker inside has replaced.
func newHostileSandbox(t *testing.T, guest http.Handler) *Sandbox {
	t.Helper()
	srv := httptest.NewServer(guest)
	t.Cleanup(srv.Close)
	c, err := New(URL(srv.URL), Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	return &Sandbox{client: c}
}

// ReadDir and Stat bound their responses. The server uses both for MCP, and a hostile guest could
// exhaust its memory.
func TestFileCallsBoundResponses(t *testing.T) {
	// Two bytes encode an empty entry. long is one entry of 32 MiB, whose only field fills it.
	entries := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 0}, n) }
	long := append([]byte{0x0a, 0x80, 0x80, 0x80, 0x10, 0x1a, 0xfb, 0xff, 0xff, 0x0f}, bytes.Repeat([]byte("x"), 32<<20)...)
	for name, c := range map[string]struct {
		body   []byte
		packed bool
		want   error
	}{
		"a short list": {body: entries(10)},
		"many entries": {body: entries(100_001), want: ErrExhausted},
		"a long name":  {body: long[:32<<20+5], want: ErrExhausted},
		"a bomb":       {body: entries(10), packed: true, want: ErrInternal},
	} {
		files := newHostileSandbox(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			out := io.WriteCloser(struct {
				io.Writer
				io.Closer
			}{w, http.NoBody})
			if c.packed {
				w.Header().Set("Content-Encoding", "gzip")
				out = gzip.NewWriter(w)
			}
			// Writing fails if the client disconnects before the end.
			_, _ = out.Write(c.body)
			_ = out.Close()
		})).FS().WithContext(t.Context())
		if _, err := files.ReadDir("x"); !errors.Is(err, c.want) {
			t.Errorf("%s: ReadDir: error %v, want %v", name, err, c.want)
		}
		if _, err := files.Stat("x"); name == "a long name" && !errors.Is(err, ErrExhausted) || c.packed && err == nil {
			t.Errorf("%s: Stat: error %v", name, err)
		}
	}
}

// floodingProcessService is a guest whose chmod prints a large output.
type floodingProcessService struct {
	processpbconnect.UnimplementedProcessHandler
	heapGrowth int64 // in bytes, until all was printed
}

const printedBytes = 64 << 20

func (l *floodingProcessService) Start(_ context.Context, _ *connect.Request[processpb.StartRequest], s *connect.ServerStream[processpb.StartResponse]) error {
	send := func(e *processpb.ProcessEvent) error { return s.Send(&processpb.StartResponse{Event: e}) }
	if err := send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}}); err != nil {
		return err
	}
	before, text := heapBytes(), bytes.Repeat([]byte("x"), 32<<10)
	for range printedBytes / len(text) / 2 {
		for _, out := range []*processpb.ProcessEvent_DataEvent{
			{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: text}}, {Output: &processpb.ProcessEvent_DataEvent_Stderr{Stderr: text}},
		} {
			if err := send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: out}}); err != nil {
				return err
			}
		}
	}
	l.heapGrowth = heapBytes() - before
	return send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 1}}})
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A change of permissions runs a program inside, which an attacker may have replaced.
func TestChmodBoundsErrorOutput(t *testing.T) {
	l := &floodingProcessService{}
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(l))
	err := newHostileSandbox(t, mux).FS().WithContext(t.Context()).Chmod(0o600, "x")
	if err == nil || !strings.HasPrefix(err.Error(), "chmod: xxx") || len(err.Error()) > 3*maxChmodError {
		t.Errorf("Chmod: error %.100v", err)
	}
	if l.heapGrowth > printedBytes/4 {
		t.Errorf("chmod printed %d bytes, and the heap grew by %d", printedBytes, l.heapGrowth)
	}
}

// A guest that an attacker controls must not redirect a client to another address. The client has
// its own network and, if it is local, its own permissions, and the method, the body and the
// headers of the call would be sent along.
func TestClientFollowsNoRedirect(t *testing.T) {
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		sb := newHostileSandbox(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/v1/prune", status)
		}))
		ctx := t.Context()
		for name, call := range map[string]func() error{
			"read":    func() error { _, err := sb.FS().ReadFile("/f"); return err },
			"write":   func() error { return sb.FS().WriteFile("/f", []byte("text"), 0o644) },
			"list":    func() error { _, err := sb.FS().ReadDir("/"); return err },
			"command": func() error { return sb.CommandContext(ctx, "true").Run() },
		} {
			if err := call(); err == nil {
				t.Errorf("%d, %s: no error", status, name)
			}
		}
		if n := reached.Swap(0); n > 0 {
			t.Errorf("%d: the client followed %d times", status, n)
		}
	}
	// The control: a client that follows redirects gets there.
	res, err := other.Client().Get(newHostileSandbox(t, http.RedirectHandler(other.URL, http.StatusFound)).client.base)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if reached.Load() == 0 {
		t.Error("control: nothing was reached")
	}
}
