package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/fault"
)

// output prints the recorded output of one command, and with follow continues until the command
// ends. Unlike a replay, it does not reproduce pauses.
func (a logVerbs) output(ctx context.Context, of subject, n string, follow bool) error {
	list, err := of.recordings(ctx)
	if err != nil {
		return err
	}
	command, ok := findCommand(list, n)
	if !ok {
		return fail("show command "+n, fault.Newf(fault.NotFound, "recording_not_found", "%s has no command %s", of.name, n)).
			hint("crannog logs " + of.name + " lists its commands")
	}
	interrupt, stop := notify(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	recording, err := a.recordingOf(interrupt, of, n, follow)
	if err != nil {
		if interrupt.Err() != nil {
			return nil
		}
		return fail("show command "+n, err)
	}
	defer recording.Close()
	if a.json {
		_, err = io.Copy(a.Stdout, recording)
	} else {
		err = (&player{}).play(interrupt, recording, a.Stdout)
	}
	if err != nil && interrupt.Err() == nil && !errors.Is(err, errNothingYet) {
		return fail("show command "+n, err)
	}
	if text := remark(command); text != "" && !follow && !a.quiet {
		fmt.Fprintln(a.Stderr, "crannog: "+text)
	}
	return nil
}

func (a logVerbs) recordingOf(ctx context.Context, of subject, n string, follow bool) (io.ReadCloser, error) {
	if follow {
		return of.client.FollowRecording(ctx, of.id, n)
	}
	return of.client.RecordingOf(ctx, of.id, n)
}

// outputFollower follows the output of all commands of a sandbox.
type outputFollower struct {
	app    *app
	of     subject
	f      *listFlags
	copies sync.WaitGroup

	reported map[string]bool          // commands whose end was shown
	known    map[string]chan struct{} // by number of the command; closed at its end

	mu     sync.Mutex
	inLine bool // the last output did not end with a newline
}

// howConnect marks a caller that attached to a running command.
const howConnect = "connect"

// lines returns log lines for the commands that started or ended since the last call, and the
// commands whose output must be followed from now on. Without more, no output is followed, and each
// command has one line. later is true after the first call, when a new command has just started.
func (o *outputFollower) lines(commands []api.Recording, more, later bool) (lines []api.LogEntry, started []api.Recording) {
	for i, c := range commands {
		ended := !c.EndedAt.IsZero()
		_, isFollowed := o.known[c.ID]
		switch {
		case o.reported[c.ID]:
		case isFollowed && (!ended || !o.shown(c)):
			// The end of the command is printed after its output.
		case more && !isFollowed && c.How != howConnect && !c.Dropped && (!ended || later || i == len(commands)-1):
			started = append(started, c)
			lines = append(lines, commandLine(api.Recording{ID: c.ID, How: c.How, Command: c.Command, StartedAt: c.StartedAt}))
		case ended || !more:
			o.reported[c.ID] = true
			line := commandLine(c)
			if isFollowed {
				line.At = c.EndedAt
			}
			lines = append(lines, line)
		}
	}
	return lines, started
}

// follow starts to show the output of a command.
func (o *outputFollower) follow(ctx context.Context, c api.Recording) {
	done := make(chan struct{})
	o.known[c.ID] = done
	o.copies.Go(func() {
		defer close(done)
		if err := o.copy(ctx, c); err != nil && ctx.Err() == nil {
			o.app.note("command %s: %v", c.ID, err)
		}
	})
}

// shown reports whether the whole output of a command has been shown.
func (o *outputFollower) shown(c api.Recording) bool {
	select {
	case <-o.known[c.ID]:
		return true
	default:
		return false
	}
}

func (o *outputFollower) copy(ctx context.Context, c api.Recording) error {
	recording, err := logVerbs{o.app}.recordingOf(ctx, o.of, c.ID, true)
	if err != nil {
		return err
	}
	defer recording.Close()
	r, err := asciicast.NewReader(recording)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // the command has no recording
	}
	if err != nil {
		return err
	}
	var screen asciicast.Screen
	var text []byte
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, asciicast.ErrCut):
			return nil
		case err != nil:
			return err
		case e.Code != asciicast.Output:
			continue
		}
		text = screen.Append(text[:0], e.Data)
		if err := o.print(c, c.StartedAt.Add(e.At), text); err != nil {
			return err
		}
	}
}

// print prints a part of a command's output, unchanged or as a log entry.
func (o *outputFollower) print(c api.Recording, at time.Time, text []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(text) == 0 {
		return nil
	}
	if o.f.jsonl || o.f.format != "" || o.app.json {
		return logVerbs{o.app}.printLog(o.f, []api.LogEntry{{At: at, Level: "output", Message: string(text), Fields: map[string]string{"command": c.ID}}})
	}
	o.inLine = text[len(text)-1] != '\n'
	_, err := o.app.Stdout.Write(text)
	return err
}

// log prints log entries, each on a line of its own.
func (o *outputFollower) log(entries []api.LogEntry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inLine && len(entries) > 0 {
		o.inLine = false
		if _, err := fmt.Fprintln(o.app.Stdout); err != nil {
			return err
		}
	}
	return logVerbs{o.app}.printLog(o.f, entries)
}
