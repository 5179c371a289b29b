package mcpserver

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog/internal/fault"
)

type processIn struct {
	target
	Action string  `json:"action" jsonschema:"output: get its output; input: send it text; kill: end it; list: list running and ended commands."`
	ID     int     `json:"id,omitempty" jsonschema:"The process_id. Not for list."`
	Offset int64   `json:"offset,omitempty" jsonschema:"output: where to continue, next_offset of the last call. Negative counts from the end."`
	Wait   float64 `json:"wait_seconds,omitempty" jsonschema:"output: wait this long for more output or the end."`
	Input  string  `json:"input,omitempty" jsonschema:"input: the text, with its newline."`
	EOF    bool    `json:"eof,omitempty" jsonschema:"input: close the input afterwards."`
}

type processOut struct {
	Processes  []processInfo `json:"processes,omitempty"`
	ID         int           `json:"process_id,omitempty"`
	Output     string        `json:"output,omitempty"`
	NextOffset int64         `json:"next_offset" jsonschema:"Where the next output begins."`
	Running    bool          `json:"running"`
	ExitCode   *int          `json:"exit_code,omitempty" jsonschema:"Absent while it runs."`
	Sandbox    string        `json:"sandbox"`
	Blocked    []string      `json:"blocked,omitempty" jsonschema:"Requests that the policy denied while it ran."`
}

type processInfo struct {
	ID       int     `json:"process_id"`
	Command  string  `json:"command"`
	Running  bool    `json:"running"`
	ExitCode *int    `json:"exit_code,omitempty"`
	Seconds  float64 `json:"seconds"`
	Bytes    int64   `json:"output_bytes"`
}

func (w *view) addProcess() {
	add(w, tool{
		name: "process", title: "Follow a background command", changes: true, destroys: true, reaches: false,
		text: "Read output of, send input to, or end commands in the background: those started with background, and those that took longer than their timeout.",
		shape: func(p map[string]*jsonschema.Schema) {
			oneOf(p["action"], "output", "input", "kill", "list")
			inRange(p["id"], 1, 1<<31)
			inRange(p["wait_seconds"], 0, maxWait.Seconds())
		},
	}, w.process)
}

func (w *view) process(ctx context.Context, c *call, in processIn) (processOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return processOut{}, err
	}
	if in.Action == "list" {
		return c.listJobs(b), nil
	}
	j, err := b.job(in.ID)
	if err != nil {
		return processOut{}, err
	}
	switch in.Action {
	case "input":
		err = j.feed(ctx, in.Input, in.EOF)
	case "kill":
		if err = j.kill(); err == nil {
			err = j.wait(ctx, killWait)
		}
	}
	if err != nil {
		return processOut{}, err
	}
	since := b.latestDenial(ctx)
	defer c.progress(ctx, j.progress)()
	out, err := c.follow(ctx, b, j, in)
	if code, exited := j.exitCode(); err == nil && exited {
		out.Blocked = c.reportDenied(ctx, b, since, code != 0)
	}
	return out, err
}

const (
	// killWait bounds the wait for a killed program's end.
	killWait = 5 * time.Second
	// feedWait bounds the wait until a program reads its input.
	feedWait = 10 * time.Second
)

// feed sends input. A program that does not read does not block the call.
func (j *job) feed(ctx context.Context, text string, eof bool) error {
	if j.input == nil {
		return fault.New(fault.Conflict, "no_input", "this process does not accept input").
			WithHint("start it with background: true")
	}
	timer := time.NewTimer(feedWait)
	defer timer.Stop()
	var sent <-chan error
	for {
		slot := j.feeding
		if sent != nil {
			slot = nil
		}
		select {
		case slot <- struct{}{}:
			sent = j.send(text, eof)
		case err := <-sent:
			if err != nil {
				return fault.Wrap(err, fault.Conflict, "input_closed", "the process has closed its input")
			}
			return nil
		case <-j.done:
			return nil
		case <-timer.C:
			if sent == nil {
				return fault.New(fault.Timeout, "input_not_read", "the process has not read its earlier input yet; this was not sent")
			}
			return fault.New(fault.Timeout, "input_not_read", "the process has not read the input yet; it is sent when it does")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send starts to write to the input, and reports when it was read. The caller holds the token of
// feeding, which send releases afterwards.
func (j *job) send(text string, eof bool) <-chan error {
	sent := make(chan error, 1)
	go func() {
		defer func() { <-j.feeding }()
		_, err := io.WriteString(j.input, text)
		if err == nil && eof {
			err = j.input.Close()
		}
		sent <- err
	}()
	return sent
}

// follow returns output of a job from an offset on, and waits for some.
func (c *call) follow(ctx context.Context, b *agentSandbox, j *job, in processIn) (processOut, error) {
	offset := in.Offset
	if total, _ := j.combined.size(); offset < 0 {
		offset = max(0, total+offset)
	}
	limit := time.NewTimer(c.timeoutFor(in.Wait))
	defer limit.Stop()
wait:
	for in.Action == "output" {
		grown := j.combined.more()
		if total, _ := j.combined.size(); total > offset || j.ended() {
			break
		}
		select {
		case <-grown:
		case <-j.done:
		case <-limit.C:
			break wait
		case <-ctx.Done():
			return processOut{}, ctx.Err()
		}
	}
	j.awaitExit()
	ended := j.ended()
	data, next, skipped := j.combined.read(offset, maxText)
	out := processOut{ID: j.id, Running: !ended, NextOffset: next, Sandbox: b.sb.ID(), Output: inert(string(data))}
	if skipped > 0 {
		c.printf("%s", omittedNote(skipped))
	}
	c.printf("%s", out.Output)
	if ended && j.fail != nil {
		return processOut{}, b.explainEnd(ctx, j.fail)
	}
	c.showPictures(b, j)
	code, exited := j.exitCode()
	if exited {
		out.ExitCode = &code
		c.printf("[exit code %d]\n", code)
	}
	switch total, _ := j.combined.size(); {
	case next < total:
		c.printf("[more output: next_offset %d]\n", next)
	case !ended && exited:
		c.printf("[processes that it started are still running; next_offset %d]\n", next)
	case !ended:
		c.printf("[it is still running; next_offset %d]\n", next)
	}
	return out, nil
}

// timeoutFor returns how long a poll waits. Zero means not at all.
func (c *call) timeoutFor(seconds float64) time.Duration {
	if seconds <= 0 {
		return 0
	}
	return c.waitTime(seconds)
}

func (c *call) listJobs(b *agentSandbox) processOut {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := processOut{Sandbox: b.sb.ID(), Processes: []processInfo{}}
	for _, j := range b.jobs {
		total, _ := j.combined.size()
		info := processInfo{ID: j.id, Command: j.what, Running: !j.ended(), Seconds: j.duration().Seconds(), Bytes: total}
		if code, exited := j.exitCode(); exited {
			info.ExitCode = &code
		}
		out.Processes = append(out.Processes, info)
	}
	slices.SortFunc(out.Processes, func(a, b processInfo) int { return a.ID - b.ID })
	for _, p := range out.Processes {
		state := "running"
		if !p.Running {
			state = "ended"
		}
		c.printf("%d  %s  %.0f s  %s\n", p.ID, state, p.Seconds, p.Command)
	}
	if len(out.Processes) == 0 {
		c.printf("no command runs in the background\n")
	}
	return out
}
