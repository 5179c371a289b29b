package abuse_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var outputAttacks = []attack{
	{name: "endless output", users: ordinary, run: endlessOutput},
	{name: "one long line", users: ordinary, options: limits(func(l *api.Limits) { l.CPUMillis = 2000 }), run: longLine},
	{name: "terminal escapes", users: ordinary, run: terminalEscapes},
}

// endlessOutput prints without end, to both streams and, in full, to each alone and without line
// breaks.
func endlessOutput(t *testing.T, b *testSandbox) {
	lines := []string{"yes & exec yes >&2"}
	if hosttest.Full() {
		lines = append(lines, "exec yes", "exec yes >&2", "exec cat /dev/zero")
	}
	for _, line := range lines {
		res, err := b.exec(t, 4*time.Second, line)
		size := int64(len(res.Stdout) + len(res.Stderr))
		if err != nil || !res.Truncated || res.Hit != api.HitTimeout || size == 0 || size > 8<<20 {
			t.Errorf("%s: got %v, truncated %v, limit %q, %d bytes, want truncated output and a timeout", line, err, res.Truncated, res.Hit, size)
		}
	}
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// longLine sends one very long line through the server to a client that reads all of it. The line
// is many times longer than what the server may buffer for one command.
func longLine(t *testing.T, b *testSandbox) {
	size := int64(128 << 20)
	if hosttest.Full() {
		size = 1 << 30
	}
	var got counter
	began := time.Now()
	cmd := b.CommandContext(t.Context(), "head", "-c", strconv.FormatInt(size, 10), "/dev/zero")
	cmd.Stdout, cmd.Timeout = &got, hosttest.Patience(5*time.Minute)
	if err := cmd.Run(); err != nil || got.n != size {
		t.Errorf("got %d bytes, %v, want %d", got.n, err, size)
	}
	t.Logf("the long line was sent with %d MiB/s", size>>20*1000/max(time.Since(began).Milliseconds(), 1))
}

// terminalEscapes sets the terminal's title, its clipboard and its colours. A person who runs a
// program gets its output unchanged; a program that requests JSON gets text without terminal
// controls.
func terminalEscapes(t *testing.T, b *testSandbox) {
	const hostile = "\x1b]0;title\x07\x1b]52;c;Y21k\x07\x1b[2J\x1b[31m\x9b5n\x08\r"
	args := []string{"--state", b.environment.State, "exec"}
	command := []string{b.ID(), "--", "printf", `\033]0;title\007\033]52;c;Y21k\007\033[2J\033[31m\2335n\010\r`}
	plain, err := exec.CommandContext(t.Context(), program, append(args, command...)...).Output()
	if err != nil || string(plain) != hostile {
		t.Errorf("plain output: got %q, %v", plain, err)
	}
	for _, flags := range [][]string{{"--json"}} {
		out, err := exec.CommandContext(t.Context(), program, append(append(args, flags...), command...)...).Output()
		if err != nil {
			t.Errorf("crannog with --json: %v %s", err, out)
		}
		if i := bytes.IndexFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 {
			t.Errorf("JSON output has a control character at byte %d: %q", i, out)
		}
		var res struct{ Stdout string }
		if err := json.Unmarshal(out, &res); err != nil || !strings.HasPrefix(res.Stdout, "\x1b]0;title\x07") {
			t.Errorf("control: %q %v", res.Stdout, err)
		}
	}
}
