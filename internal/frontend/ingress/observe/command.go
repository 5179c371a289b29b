package observe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/guest/client"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/telemetry"
)

// Numbers of output sources in a recording.
const (
	stdout = 1
	stderr = 2
	pty    = 3
)

// command is a running command or cell, as one caller sees it.
type command struct {
	tap       *Tap
	call      Call
	what      Started
	started   time.Time
	recording *recording.Recording
	span      trace.Span

	mu     sync.Mutex
	pid    uint32
	sums   [pty + 1]*counter
	stderr client.Tail // end of standard error
	ended  bool
}

// counter sums up one stream.
type counter struct {
	hash  hash.Hash
	bytes int64
}

func (c *counter) add(data []byte) {
	c.hash.Write(data)
	c.bytes += int64(len(data))
}

func newCounter() *counter { return &counter{hash: sha256.New()} }

func (c *counter) sum() *Sum {
	if c == nil {
		return nil
	}
	return &Sum{c.bytes, hex.EncodeToString(c.hash.Sum(nil))}
}

// begin numbers a command and writes its entry before the request is forwarded. If the audit log
// refuses the entry, or there is no disk space, the command does not run.
func (t *Tap) begin(c Call, what Started) (*command, error) {
	cmd := &command{tap: t, call: c, what: what, started: time.Now(), pid: what.PID}
	_, cmd.span = telemetry.Start(trace.ContextWithSpan(context.Background(), c.parent), telemetry.Command, telemetry.Sandbox.String(c.Sandbox), telemetry.How.String(what.How))
	argv := what.Argv
	if what.How == HowCell {
		argv = []string{what.Language, what.Code}
	}
	var err error
	cmd.recording, err = t.Recordings.Begin(c.Sandbox, recording.Head{
		How: what.How, Command: argv, Started: cmd.started, TTY: what.TTY, Cols: what.cols, Rows: what.rows, Term: what.term,
	})
	if err != nil {
		t.Log.Error("recording not started", "sandbox", c.Sandbox, "err", err)
		err = unrecorded(err).err
		telemetry.End(cmd.span, err)
		return nil, err
	}
	cmd.what.N = cmd.recording.N()
	err = t.Audit.Note(audit.Draft{Time: cmd.started, Kind: audit.CommandStarted, Sandbox: c.Sandbox, Actor: c.Actor, Data: cmd.what})
	if err != nil {
		cmd.keep(recording.Tail{Error: "record_unavailable"})
		err = unrecorded(err).err
		telemetry.End(cmd.span, err)
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.running[c.Sandbox]
	if all == nil {
		all = map[*command]struct{}{}
		t.running[c.Sandbox] = all
	}
	all[cmd] = struct{}{}
	return cmd, nil
}

// each calls do for the commands that a selector matches.
func (t *Tap) each(sandbox string, which *pb.ProcessSelector, do func(*command)) {
	t.mu.Lock()
	var found []*command
	for cmd := range t.running[sandbox] {
		if cmd.matches(which) {
			found = append(found, cmd)
		}
	}
	t.mu.Unlock()
	for _, cmd := range found {
		do(cmd)
	}
}

func (cmd *command) matches(which *pb.ProcessSelector) bool {
	if tag := which.GetTag(); tag != "" {
		return cmd.what.Tag == tag
	}
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.pid != 0 && cmd.pid == which.GetPid()
}

// setPID records the command's PID.
func (cmd *command) setPID(pid uint32) {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	cmd.pid = pid
}

// printed records output of one source.
func (cmd *command) printed(source int, data []byte) {
	cmd.mu.Lock()
	ended := cmd.ended
	if !ended {
		c := cmd.sums[source]
		if c == nil {
			c = newCounter()
			cmd.sums[source] = c
		}
		c.add(data)
		if source == stderr {
			cmd.stderr.Add(data)
		}
	}
	cmd.mu.Unlock()
	if !ended {
		cmd.recording.Output(source, data)
	}
}

// addCellError records the error of a cell as standard error.
func (cmd *command) addCellError(text string) {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	cmd.stderr.Add([]byte(text))
}

// exited processes the end event.
func (cmd *command) exited(end *pb.ProcessEvent_EndEvent) {
	exit := client.ExitOf(end)
	cmd.end(Ended{Exit: &exit.Code, Signal: int(exit.Signal)})
}

// failed processes an error in place of an end. The code for a time limit counts as an end too.
func (cmd *command) failed(code string) {
	cmd.mu.Lock()
	ran := cmd.pid != 0 && cmd.what.How != HowConnect
	cmd.mu.Unlock()
	if code == "deadline_exceeded" && ran {
		exit := client.CodeTimeout
		cmd.end(Ended{Exit: &exit, TimedOut: true, Error: "timeout"})
		return
	}
	cmd.end(Ended{Error: code, Lost: ran})
}

// finish is called at the end of the request. A command without an end event counts as lost.
func (cmd *command) finish() { cmd.end(Ended{Lost: true}) }

// end writes the entry about the end. Only the first call has an effect.
func (cmd *command) end(e Ended) {
	cmd.mu.Lock()
	if cmd.ended {
		cmd.mu.Unlock()
		return
	}
	cmd.ended = true
	e.PID = cmd.pid
	if e.Exit != nil {
		e.Hit = client.LimitHit(client.Exit{Code: *e.Exit, TimedOut: e.TimedOut}, cmd.stderr.String(), false)
	}
	e.Stdout, e.Stderr, e.PTY = cmd.sums[stdout].sum(), cmd.sums[stderr].sum(), cmd.sums[pty].sum()
	cmd.mu.Unlock()
	now := time.Now()
	e.N, e.DurationMS, e.Truncated = cmd.what.N, math.Round(now.Sub(cmd.started).Seconds()*1e6)/1e3, e.Truncated || cmd.recording.Truncated()
	cmd.keep(recording.Tail{Ended: now, Exit: e.Exit, Error: e.Error, Lost: e.Lost})
	t := cmd.tap
	if e.Exit != nil {
		cmd.span.SetAttributes(telemetry.ExitCode.Int(*e.Exit))
	}
	cmd.span.End()
	t.Times.Observe(now.Sub(cmd.started), cmd.what.How, e.outcome())
	t.note(audit.Draft{Time: now, Kind: audit.CommandEnded, Sandbox: cmd.call.Sandbox, Actor: cmd.call.Actor, Data: e})
	t.mu.Lock()
	delete(t.running[cmd.call.Sandbox], cmd)
	if len(t.running[cmd.call.Sandbox]) == 0 {
		delete(t.running, cmd.call.Sandbox)
	}
	if t.idle != nil && len(t.running) == 0 {
		close(t.idle)
		t.idle = nil
	}
	t.mu.Unlock()
}

// outcome is the label of a command's end in metrics.
func (e Ended) outcome() string {
	switch {
	case e.TimedOut:
		return "timeout"
	case e.Exit != nil && *e.Exit == 0:
		return "ok"
	case e.Exit != nil:
		return "failed"
	case e.Lost:
		return "lost"
	}
	return "error"
}

// keep ends the recording. If the recording is incomplete, the caller still gets the output.
func (cmd *command) keep(tail recording.Tail) {
	if tail.Ended.IsZero() {
		tail.Ended = time.Now()
	}
	if err := cmd.recording.End(tail); err != nil {
		cmd.tap.Log.Error("recording not completed", "sandbox", cmd.call.Sandbox, "err", err)
	}
}
