package observe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/redact"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// start sends the request to start a command. It returns the error, or "" if the request was
// admitted.
func start(t *testing.T, tp *Tap, kind string, body io.Reader) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/process.Process/Start", body)
	r.Header.Set("Content-Type", "application/connect+"+kind)
	r.Header.Set(tokenHeader, "t")
	w := httptest.NewRecorder()
	v, ok := tp.Admit(w, r, Call{Sandbox: "box1", Port: guestboot.Port, Actor: "a", Token: "t"})
	if v.Done(); ok {
		return ""
	}
	return w.Body.String()
}

func marshal(t *testing.T, kind string, m proto.Message) []byte {
	t.Helper()
	encode := proto.Marshal
	if kind != "proto" {
		encode = protojson.Marshal
	}
	data, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestArgumentsAreCountedBeforeDecoding checks the limit for arguments and variables. A request
// could contain a million empty arguments in two bytes each, which would need much memory when
// decoded.
func TestArgumentsAreCountedBeforeDecoding(t *testing.T) {
	tp, r := newTap(t, nil)
	many := make([]string, 70_000)
	envs := map[string]string{}
	for i := range many {
		envs[fmt.Sprint("v", i)] = ""
	}
	for _, c := range []struct {
		name    string
		config  *pb.ProcessConfig
		refused bool
	}{
		{"many", &pb.ProcessConfig{Cmd: "x", Args: many[:65_000]}, false},
		{"too many", &pb.ProcessConfig{Cmd: "x", Args: many}, true},
		{"too many variables", &pb.ProcessConfig{Cmd: "x", Envs: envs}, true},
		{"too many together", &pb.ProcessConfig{Cmd: "x", Args: many[:40_000], Envs: map[string]string{"a": "b"}}, false},
		{"commas in one", &pb.ProcessConfig{Cmd: "x", Args: []string{strings.Repeat(`",\",`, 30_000)}}, false},
		{"largest argument", &pb.ProcessConfig{Cmd: "x", Args: []string{strings.Repeat("x", 2<<20)}}, false},
	} {
		for _, kind := range []string{"proto", "json", "json; charset=utf-8"} {
			body := framed(0, marshal(t, kind, &pb.StartRequest{Process: c.config}))
			answer := start(t, tp, kind, bytes.NewReader(body))
			if c.refused != (answer != "") || c.refused && (!strings.Contains(answer, "invalid_argument") || !strings.Contains(answer, errTooManyParts.Error())) {
				t.Errorf("%s, %s: %.200q", c.name, kind, answer)
			}
		}
	}
	// If a request has several commands, the library merges them into one.
	half := marshal(t, "proto", &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "x", Args: many[:40_000]}})
	if answer := start(t, tp, "proto", bytes.NewReader(framed(0, append(half, half...)))); !strings.Contains(answer, errTooManyParts.Error()) {
		t.Errorf("two commands in one request: got %.200q", answer)
	}
	if n := len(r.Entries(audit.CommandStarted)); n != 4*3 {
		t.Errorf("got %d audit entries, want %d", n, 4*3)
	}
	million := framed(0, marshal(t, "proto", &pb.StartRequest{Process: &pb.ProcessConfig{Args: make([]string, 1_000_000)}}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start(t, tp, "proto", bytes.NewReader(million))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
		t.Errorf("a million arguments took %d bytes of memory", took)
	}
}

// endless is a body without an end.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read += len(b); e.read > 64<<20 {
		return 0, io.EOF
	}
	clear(b)
	return len(b), nil
}

// TestLargeRequestsAreNotReadToEnd checks a request that announces 4 GiB, all of which would be
// buffered, and a smaller one that still exceeds the limits of every kernel.
func TestLargeRequestsAreNotReadToEnd(t *testing.T) {
	tp, _ := newTap(t, nil)
	for _, size := range []uint32{1<<32 - 1, maxRequest + 1} {
		for kind, flags := range map[string]byte{"proto": 0, "json": 2} {
			body := &endless{}
			answer := start(t, tp, kind, io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{flags}, size)), body))
			if !strings.Contains(answer, "resource_exhausted") || body.read > maxRequest+1<<20 {
				t.Errorf("%d bytes, %s: %d were read, %.200q", size, kind, body.read, answer)
			}
		}
	}
}

// TestLongFileNamesAreShortened checks that long names of files are redacted first, and then
// shortened.
func TestLongFileNamesAreShortened(t *testing.T) {
	const value = "tk-Zr8qP2mW/Lx4vB9+cd"
	mask, err := sandbox.NewRedactor([]redact.Value{{Name: "KEY", Data: []byte(value)}}, sandbox.RedactorOptions{Outputs: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &parts{mask: mask.Record()}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range []string{"short", strings.Repeat("\u20ac", 100_000), strings.Repeat("x", 1015) + value} {
		w, err := form.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "content"); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	p.read(&body, "multipart/form-data", form.Boundary(), false, "")
	if len(p.files) != 3 || p.files[0].Path != "short" {
		t.Fatalf("%d files", len(p.files))
	}
	for _, f := range p.files {
		if len(f.Path) > limit/8+4 || f.Bytes != 7 || strings.Contains(f.Path, value[:5]) || len(f.Path) > 100 && !strings.HasSuffix(f.Path, "…") {
			t.Errorf("%d bytes: %.40q", len(f.Path), f.Path)
		}
	}
	m := &move{call: Call{Mask: mask}}
	for _, f := range p.files {
		if again := m.draft(f).Data.(Moved).Path; again != f.Path {
			t.Errorf("cut twice: %q", again[max(0, len(again)-20):])
		}
	}
}
