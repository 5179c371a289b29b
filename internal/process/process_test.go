package process

import (
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/gen/processpb"
)

func TestExit(t *testing.T) {
	failed := "signal: killed (core dumped)"
	for name, test := range map[string]struct {
		end  *processpb.ProcessEvent_EndEvent
		want Exit
	}{
		"good":        {&processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}, Exit{}},
		"code":        {&processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 7, Status: "exit status 7"}, Exit{Code: 7}},
		"signal":      {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: terminated"}, Exit{Code: 143, Signal: syscall.SIGTERM}},
		"only error":  {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Error: &failed}, Exit{Code: 137, Signal: syscall.SIGKILL}},
		"no name":     {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: nonsense"}, Exit{Code: 255}},
		"real time":   {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: signal 40"}, Exit{Code: 168, Signal: 40}},
		"not negated": {&processpb.ProcessEvent_EndEvent{ExitCode: -2147483648}, Exit{Code: 255}},
	} {
		if got := ExitOf(test.end); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestStartFaults(t *testing.T) {
	for code, want := range map[connect.Code]string{
		connect.CodeNotFound: CodeNotFound, connect.CodePermissionDenied: CodeNotExecutable,
		connect.CodeInvalidArgument: "invalid_argument", connect.CodeResourceExhausted: "exhausted",
	} {
		err := startFault(connect.NewError(code, errors.New("because")))
		if fault.CodeOf(err) != want || fault.PublicText(err) != "because" {
			t.Errorf("%v: %s %q", code, fault.CodeOf(err), fault.PublicText(err))
		}
	}
	err := startFault(connect.NewError(connect.CodeInvalidArgument, errors.New("command 'x' cannot run: exec format error")))
	if fault.CodeOf(err) != CodeNotExecutable {
		t.Errorf("%v", fault.CodeOf(err))
	}
}

func TestHit(t *testing.T) {
	const full = "cp: No space left on device"
	for name, test := range map[string]struct {
		exit      Exit
		stderr    string
		truncated bool
		want      string
	}{
		"none":            {},
		"time before all": {Exit{Code: 124, TimedOut: true}, full, true, api.HitTimeout},
		"disk":            {Exit{Code: 1}, full, false, api.HitDiskFull},
		"disk, but well":  {Exit{}, full, false, api.HitNone},
		"fork, and well":  {Exit{}, "bash: fork: retry: Resource temporarily unavailable", false, api.HitPIDs},
		"threads":         {Exit{Code: 1}, "RuntimeError: can't start new thread", false, api.HitPIDs},
		"memory":          {Exit{Code: 1}, "MemoryError", false, api.HitOOM},
		"output":          {Exit{Code: 1}, "", true, api.HitOutput},
	} {
		if got := Hit(test.exit, test.stderr, test.truncated); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The limit holds over both streams together, whoever writes first.
func TestCollector(t *testing.T) {
	c := NewCollector(100)
	var both sync.WaitGroup
	for _, w := range []io.Writer{c.Stdout(), c.Stderr()} {
		both.Go(func() {
			for range 1000 {
				if n, err := io.WriteString(w, strings.Repeat("x", 7)); n != 7 || err != nil {
					t.Errorf("%d %v", n, err)
				}
			}
		})
	}
	both.Wait()
	r := c.Result(Exit{})
	if len(r.Stdout)+len(r.Stderr) != 100 || !r.Truncated || r.Hit != api.HitOutput {
		t.Errorf("%d and %d bytes, %+v", len(r.Stdout), len(r.Stderr), r.Hit)
	}
}

// What is kept comes back as it came, whatever pieces it came in, and takes
// little more memory than that.
func TestPieces(t *testing.T) {
	for _, size := range []int{1, 100, 4096, 32 << 10, 100_000} {
		var p pieces
		var want strings.Builder
		for i := 0; want.Len() < 1<<20; i++ {
			text := strings.Repeat(string(rune('a'+i%26)), size)
			want.WriteString(text)
			p.add([]byte(text))
		}
		if p.text() != want.String() {
			t.Errorf("pieces of %d: not what was added", size)
		}
		room := 0
		for _, b := range p {
			room += cap(b)
		}
		if room > want.Len()+blockSize {
			t.Errorf("pieces of %d: %d bytes take %d", size, want.Len(), room)
		}
	}
	var none pieces
	if none.add(nil); none.text() != "" || none != nil {
		t.Errorf("%v", none)
	}
}

// The end of what was printed is kept, whatever pieces it came in, and no more
// memory is taken than for that.
func TestTail(t *testing.T) {
	for _, piece := range []int{1, 7, 1000, tailSize - 1, tailSize, tailSize + 1, 100_000} {
		var tail Tail
		var all strings.Builder
		for i := range 5*tailSize/piece + 3 {
			text := strings.Repeat(string(rune('a'+i%26)), piece)
			all.WriteString(text)
			tail.Add([]byte(text))
			if cap(tail.kept) > 4*tailSize {
				t.Fatalf("pieces of %d: %d bytes are held", piece, cap(tail.kept))
			}
		}
		if got := tail.String(); len(got) != tailSize || !strings.HasSuffix(all.String(), got) {
			t.Errorf("pieces of %d: %d bytes, and not the last ones", piece, len(got))
		}
	}
	var tail Tail
	if tail.Add([]byte("short")); tail.String() != "short" {
		t.Errorf("%q", tail.String())
	}
}
