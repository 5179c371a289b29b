package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
)

func TestExitOf(t *testing.T) {
	failed := "signal: killed (core dumped)"
	for name, test := range map[string]struct {
		end  *processpb.ProcessEvent_EndEvent
		want Exit
	}{
		"success":     {&processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}, Exit{}},
		"code":        {&processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 7, Status: "exit status 7"}, Exit{Code: 7}},
		"signal":      {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: terminated"}, Exit{Code: 143, Signal: syscall.SIGTERM}},
		"only error":  {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Error: &failed}, Exit{Code: 137, Signal: syscall.SIGKILL}},
		"no name":     {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: nonsense"}, Exit{Code: 255}},
		"real time":   {&processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: signal 40"}, Exit{Code: 168, Signal: 40}},
		"not negated": {&processpb.ProcessEvent_EndEvent{ExitCode: -2147483648}, Exit{Code: 255}},
	} {
		if got := ExitOf(test.end); got != test.want {
			t.Errorf("ExitOf, %s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestStartFaultCodes(t *testing.T) {
	for code, want := range map[connect.Code]string{
		connect.CodeNotFound: CodeNotFound, connect.CodePermissionDenied: CodeNotExecutable,
		connect.CodeInvalidArgument: "invalid_argument", connect.CodeResourceExhausted: "exhausted",
	} {
		err := startFault(connect.NewError(code, errors.New("because")))
		if fault.CodeOf(err) != want || fault.PublicText(err) != "because" {
			t.Errorf("fault of a start with %v: got %s %q, want %s \"because\"", code, fault.CodeOf(err), fault.PublicText(err), want)
		}
	}
	err := startFault(connect.NewError(connect.CodeInvalidArgument, errors.New("command 'x' cannot run: exec format error")))
	if fault.CodeOf(err) != CodeNotExecutable {
		t.Errorf("fault code: got %v, want %s", fault.CodeOf(err), CodeNotExecutable)
	}
}

// Errors of the connection to the guest are not treated as errors of the guest.
func TestConnectionErrorsAreUnavailable(t *testing.T) {
	for _, err := range []error{
		connect.NewError(connect.CodeUnavailable, errors.New("HTTP status 502 Bad Gateway")),
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: incomplete envelope: %w", io.ErrUnexpectedEOF)),
	} {
		for _, got := range []error{toFault(err), startFault(err)} {
			if fault.KindOf(got) != fault.Unavailable || fault.CodeOf(got) != CodeLost || strings.Contains(fault.PublicText(got), "HTTP") || strings.Contains(fault.PublicText(got), "protocol") || !errors.Is(got, err) {
				t.Errorf("fault of %v: got %s %q, want %s without internals", err, fault.CodeOf(got), fault.PublicText(got), CodeLost)
			}
		}
	}
	wireErr := connect.NewWireError(connect.CodeUnavailable, errors.New("because"))
	if got := toFault(wireErr); fault.CodeOf(got) != "unavailable" || fault.PublicText(got) != "because" {
		t.Errorf("error of the guest itself: got %v", got)
	}
}

func TestLimitHit(t *testing.T) {
	const full = "cp: No space left on device"
	for name, test := range map[string]struct {
		exit      Exit
		stderr    string
		truncated bool
		want      string
	}{
		"none":             {},
		"time limit first": {Exit{Code: 124, TimedOut: true}, full, true, api.HitTimeout},
		"disk":             {Exit{Code: 1}, full, false, api.HitDiskFull},
		"disk, exit 0":     {Exit{}, full, false, api.HitNone},
		"fork, exit 0":     {Exit{}, "bash: fork: retry: Resource temporarily unavailable", false, api.HitPIDs},
		"threads":          {Exit{Code: 1}, "RuntimeError: can't start new thread", false, api.HitPIDs},
		"memory":           {Exit{Code: 1}, "MemoryError", false, api.HitOOM},
		"output":           {Exit{Code: 1}, "", true, api.HitOutput},
	} {
		if got := LimitHit(test.exit, test.stderr, test.truncated); got != test.want {
			t.Errorf("LimitHit, %s: got %q, want %q", name, got, test.want)
		}
	}
}

// The limit applies to both streams together, whichever is written first.
func TestCollectorLimitsBothStreams(t *testing.T) {
	c := NewCollector(100)
	var writers sync.WaitGroup
	for _, w := range []io.Writer{c.Stdout(), c.Stderr()} {
		writers.Go(func() {
			for range 1000 {
				if n, err := io.WriteString(w, strings.Repeat("x", 7)); n != 7 || err != nil {
					t.Errorf("write to the collector: got %d, %v, want 7", n, err)
				}
			}
		})
	}
	writers.Wait()
	r := c.Result(Exit{})
	if len(r.Stdout)+len(r.Stderr) != 100 || !r.Truncated || r.Hit != api.HitOutput {
		t.Errorf("got %d and %d bytes, hit %q, want 100 together", len(r.Stdout), len(r.Stderr), r.Hit)
	}
}

// Stored output is returned unchanged, whatever the size of the added pieces, and needs little more
// memory than its size.
func TestPiecesReturnAddedText(t *testing.T) {
	for _, size := range []int{1, 100, 4096, 32 << 10, 100_000} {
		var p pieces
		var want strings.Builder
		for i := 0; want.Len() < 1<<20; i++ {
			text := strings.Repeat(string(rune('a'+i%26)), size)
			want.WriteString(text)
			p.add([]byte(text))
		}
		allocated := 0
		for _, b := range p.blocks {
			allocated += cap(b)
		}
		if allocated > want.Len()+blockSize {
			t.Errorf("pieces of %d: %d bytes take %d", size, want.Len(), allocated)
		}
		if p.text() != want.String() || p.blocks != nil {
			t.Errorf("pieces of %d: text differs from the added pieces, or blocks are not freed", size)
		}
	}
	var none pieces
	if none.add(nil); none.text() != "" || none.blocks != nil {
		t.Errorf("pieces after adding nothing: got %v, want no blocks", none)
	}
}

// Invalid UTF-8 is replaced as by strings.ToValidUTF8, wherever a write cuts a character, and add
// counts the stored bytes.
func TestPiecesReplaceInvalidUTF8(t *testing.T) {
	parts := []string{"a", "\xff", "\x80", "\xe2", "\xe2\x82", "\u20ac", "\U0001f3dd", "\xf0\x9f", "\xed\xa0\x80", "\uFFFD", "\x00", "xyz"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var all strings.Builder
		for range r.IntN(12) {
			all.WriteString(parts[r.IntN(len(parts))])
		}
		var p pieces
		var grown int64
		for rest := []byte(all.String()); len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			grown += p.add(rest[:n])
			rest = rest[n:]
		}
		cut := len(p.cut) > 0
		got, want := p.text(), strings.ToValidUTF8(all.String(), replacement)
		if got != want || !cut && grown != int64(len(want)) {
			t.Fatalf("%q: %q after %d bytes, want %q", all.String(), got, grown, want)
		}
	}
}

// Result allocates memory for one copy of the output, even if much of the output is invalid UTF-8.
func TestResultAllocatesOneCopy(t *testing.T) {
	const size = 16 << 20
	c := NewCollector(size)
	for range size / (32 << 10) {
		if _, err := c.Stdout().Write(bytes.Repeat([]byte("a\xff"), 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := c.Result(Exit{})
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > uint64(len(r.Stdout))+1<<20 || len(r.Stdout) != 2*size || !utf8.ValidString(r.Stdout) {
		t.Errorf("Result allocated %d bytes for a text of %d", allocated, len(r.Stdout))
	}
	if c.stdout.blocks != nil {
		t.Error("Result did not free the blocks")
	}
}

// Many concurrent calls store no more than the budget, in addition to the small share of each.
// Output beyond that is discarded at once, and the memory is released.
func TestBudgetIsShared(t *testing.T) {
	budget := NewBudget(1<<20 - 3*ownBudget)
	shares := []*Share{budget.Share(), budget.Share(), budget.Share()}
	stored := 0
	for i, s := range shares {
		c := NewCollectorIn(s, 600<<10)
		for range 600 {
			if n, err := c.Stderr().Write(make([]byte, 1<<10)); n != 1<<10 || err != nil {
				t.Fatal(n, err)
			}
		}
		r := c.Result(Exit{})
		stored += len(r.Stderr)
		if want := i > 0; r.Truncated != want || want && r.Hit != api.HitOutput {
			t.Errorf("call %d: got %d bytes, truncated %v, hit %q", i, len(r.Stderr), r.Truncated, r.Hit)
		}
	}
	if stored != 1<<20 {
		t.Errorf("got %d stored bytes, want %d", stored, 1<<20)
	}
	if n := shares[2].held; n != 0 {
		t.Errorf("the last share holds %d bytes of the budget, want 0", n)
	}
	// The bytes that a replacement adds are counted too, and everything is freed again.
	shares[0].Close()
	shares[0].Close()
	c := NewCollectorIn(shares[1], 1<<20)
	if _, err := c.Stdout().Write([]byte(strings.Repeat("a\xff", 1<<10))); err != nil {
		t.Fatal(err)
	}
	if want := int64(600<<10 - ownBudget - 4<<10); budget.left != want {
		t.Errorf("budget: got %d bytes, want %d", budget.left, want)
	}
	for _, s := range shares {
		s.Close()
	}
	if budget.left != 1<<20-3*ownBudget {
		t.Errorf("budget after Close: got %d bytes, want %d", budget.left, 1<<20-3*ownBudget)
	}
}

// Tail stores the end of the output, whatever the size of the added pieces, in bounded memory.
func TestTailStoresEnd(t *testing.T) {
	for _, piece := range []int{1, 7, 1000, tailSize - 1, tailSize, tailSize + 1, 100_000} {
		var tail Tail
		var all strings.Builder
		for i := range 5*tailSize/piece + 3 {
			text := strings.Repeat(string(rune('a'+i%26)), piece)
			all.WriteString(text)
			tail.Add([]byte(text))
			if cap(tail.buf) > 4*tailSize {
				t.Fatalf("pieces of %d: %d bytes are held", piece, cap(tail.buf))
			}
		}
		if got := tail.String(); len(got) != tailSize || !strings.HasSuffix(all.String(), got) {
			t.Errorf("pieces of %d: got %d bytes, want the last %d", piece, len(got), tailSize)
		}
	}
	var tail Tail
	if tail.Add([]byte("short")); tail.String() != "short" {
		t.Errorf("Tail: got %q, want short", tail.String())
	}
}
