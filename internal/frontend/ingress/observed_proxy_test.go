package ingress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// observedProxy is a test environment whose proxy writes audit entries and recordings.
type observedProxy struct {
	*testProxy
	record     *audittest.Log
	recordings *recording.Store
	tap        *observe.Tap
	// surveyed receives the sandboxes whose files were surveyed.
	surveyed chan string
}

func newObservedProxy(t testing.TB) *observedProxy {
	t.Helper()
	w := newTestProxy(t)
	x := &observedProxy{
		testProxy: w, record: &audittest.Log{}, surveyed: make(chan string, 100),
		recordings: recording.New(recording.Options{Dir: filepath.Join(t.TempDir(), "recordings")}),
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	x.tap, err = observe.New(observe.Deps{Audit: x.record, Recordings: x.recordings, Log: log, Survey: func(_ context.Context, id string) error {
		x.surveyed <- id
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = ingress.New(ingress.Deps{Traffic: w.inside, Waker: w.inside, Log: log, Tap: x.tap})
	w.front = httptest.NewServer(w.proxy)
	t.Cleanup(func() {
		w.front.Close()
		w.proxy.Close()
		x.tap.Close()
		if err := x.recordings.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// tokenClient sends the sandbox's token.
type tokenClient struct{ addressed }

func (k *tokenClient) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Access-Token", "token-"+boxID)
	return k.addressed.Do(r)
}

func (x *observedProxy) client(options ...connect.ClientOption) processpbconnect.ProcessClient {
	return processpbconnect.NewProcessClient(&tokenClient{addressed{x.front.Client()}}, x.front.URL, options...)
}

// started and ended return the data of all entries of their kind so far.
func (x *observedProxy) started(t testing.TB) []observe.Started {
	return dataOf[observe.Started](t, x.record, audit.CommandStarted)
}

func (x *observedProxy) ended(t testing.TB) []observe.Ended {
	return dataOf[observe.Ended](t, x.record, audit.CommandEnded)
}

func dataOf[T any](t testing.TB, r *audittest.Log, kind audit.Kind) (list []T) {
	t.Helper()
	for _, e := range r.Entries(kind) {
		if e.Sandbox != boxID || e.Actor == "" {
			t.Errorf("audit entry: got %+v", e)
		}
		var one T
		if err := json.Unmarshal(e.Data, &one); err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// replay returns the output in the recording of a command.
func (x *observedProxy) replay(t testing.TB, n int) (text string, events []asciicast.Event) {
	t.Helper()
	f, err := x.recordings.Open(boxID, n)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := asciicast.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text, events
		}
		if err != nil {
			t.Fatal(err)
		}
		if events = append(events, e); e.Code == asciicast.Output {
			text += e.Data
		}
	}
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// countingGuest is a guest that counts the processes that it starts.
type countingGuest struct {
	scriptedGuest
	mu   sync.Mutex
	runs []string
}

func (s *countingGuest) Start(ctx context.Context, r *connect.Request[pb.StartRequest], stream *connect.ServerStream[pb.StartResponse]) error {
	s.mu.Lock()
	s.runs = append(s.runs, r.Msg.GetProcess().GetCmd())
	s.mu.Unlock()
	if r.Header().Get("X-Access-Token") != "token-"+boxID {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("no token"))
	}
	if r.Msg.GetProcess().GetCmd() == "absent" {
		return connect.NewError(connect.CodeNotFound, errors.New("no such program"))
	}
	return s.scriptedGuest.Start(ctx, r, stream)
}

func (x *observedProxy) serves(s processpbconnect.ProcessHandler) {
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(s, codec.Options(64<<20)...))
	x.serve(boxID, guestboot.Port, mux)
}

func startEvent(pid uint32) *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: pid}}}
}

func (x *observedProxy) post(t testing.TB, port int, path, kind, body string, header map[string]string) (*http.Response, string) {
	t.Helper()
	r := x.request(t, port, "POST", path)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set("X-Access-Token", "token-"+boxID)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	res, err := x.front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(data)
}

func enveloped(flags byte, message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))) + message
}

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// multipartForm returns a body with files and its content type.
func multipartForm(t testing.TB, files ...string) (kind, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		p, err := w.CreateFormFile("file", files[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

// checkGoroutines fails if a test has left goroutines behind.
func checkGoroutines(t *testing.T, before int) {
	t.Helper()
	hosttest.Eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// once runs a command to its end.
func (x *observedProxy) once(options ...connect.ClientOption) error {
	s, err := x.client(options...).Start(context.Background(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "true"}}))
	if err != nil {
		return err
	}
	for s.Receive() {
	}
	return errors.Join(s.Err(), s.Close())
}
