package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// report returns the result of a command that has ended or still runs.
func (c *call) report(ctx context.Context, b *agentSandbox, j *job, since uint64) (commandResult, error) {
	ended := j.ended()
	code, exited := j.exitCode()
	if ended && j.fail != nil {
		return commandResult{}, b.explainEnd(ctx, j.fail)
	}
	out := commandResult{Sandbox: b.sb.ID(), Running: !ended, DurationMS: j.duration().Milliseconds()}
	text, short := cut(inert(j.combined.text()), maxText)
	var shorter bool
	out.Stdout, out.Stderr, shorter = divideRoom(inert(j.out.text()), inert(j.err.text()))
	total, kept := j.combined.size()
	out.Truncated = short || shorter || int64(kept) < total
	c.printf("%s", text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		c.printf("\n")
	}
	c.showPictures(b, j)
	if exited {
		out.ExitCode = &code
	}
	switch {
	case exited && code != 0:
		c.printf("[exit code %d]\n", code)
	case exited && text == "":
		c.printf("[no output]\n")
	}
	if !ended {
		out.Process = j.id
		subject := "it runs"
		if exited {
			subject = "what it started runs"
		}
		c.printf("[%s on in the background as process %d: the tool process with id %d shows more]\n", subject, j.id, j.id)
	}
	if out.Truncated || !ended {
		out.LogURI = logURI(b.sb.ID(), j.id)
		c.more = append(c.more, &mcp.ResourceLink{
			URI: out.LogURI, Name: fmt.Sprintf("log %d", j.id), Title: "Output of: " + j.what,
			Description: fmt.Sprintf("All output that is kept, %d bytes so far", total), MIMEType: "text/plain",
		})
	} else {
		b.drop(j)
	}
	out.Blocked = c.reportDenied(ctx, b, since, code != 0)
	return out, nil
}

// divideRoom divides the space of a result between two streams.
func divideRoom(stdout, stderr string) (string, string, bool) {
	o, e := utf8.RuneCountInString(stdout), utf8.RuneCountInString(stderr)
	if o+e <= maxText {
		return stdout, stderr, false
	}
	half := maxText / 2
	stdout, _ = cut(stdout, max(half, maxText-e))
	stderr, _ = cut(stderr, max(half, maxText-o))
	return stdout, stderr, true
}

// explainEnd explains why a command's stream broke: often its sandbox has ended.
func (b *agentSandbox) explainEnd(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	info, refreshErr := b.sb.Refresh(ctx)
	if refreshErr != nil || info.State == "running" {
		return err
	}
	return notRunning(info)
}

// duration returns how long the job ran, or has been running.
func (j *job) duration() time.Duration {
	if j.ended() {
		return j.finish.Sub(j.started)
	}
	return time.Since(j.started)
}

// progress describes the job's progress in one line.
func (j *job) progress() string {
	total, _ := j.combined.size()
	return fmt.Sprintf("running for %d s, %d bytes of output", int(j.duration().Seconds()), total)
}

func logURI(sandbox string, n int) string { return fmt.Sprintf("sandbox://%s/logs/%d", sandbox, n) }
