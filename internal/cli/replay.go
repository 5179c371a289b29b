package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/fault"
)

// maxSpeed is the largest factor of --speed.
const maxSpeed = 1000

// player holds the options of a replay.
type player struct {
	speed float64
	idle  time.Duration // longest pause; 0 means no limit
	paced bool          // false prints all at once
}

// replay replays the named command, or the last one that has a recording.
func (a logVerbs) replay(ctx context.Context, r subject, n string, p *player) error {
	list, err := r.recordings(ctx)
	if err != nil {
		return err
	}
	command, ok := findCommand(list, n)
	if !ok {
		return fail("replay", fault.Newf(fault.NotFound, "recording_not_found", "%s has no recordings", r.name)).
			hint("crannog logs " + r.name + " lists its commands")
	}
	recording, err := r.client.RecordingOf(ctx, r.id, command.ID)
	if err != nil {
		return fail("replay command "+command.ID, err)
	}
	defer recording.Close()
	if a.json {
		if _, err := io.Copy(a.Stdout, recording); err != nil {
			return fail("replay command "+command.ID, err)
		}
		return nil
	}
	ctx, stop := notify(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err = p.play(ctx, recording, a.Stdout)
	switch {
	case errors.Is(err, errNothingYet):
		return fail("replay command "+command.ID, fault.New(fault.Conflict, "recording_not_ready", "it has no output yet"))
	case err != nil && ctx.Err() == nil:
		return fail("replay command "+command.ID, err)
	}
	if text := remark(command); text != "" && ctx.Err() == nil && !a.quiet {
		fmt.Fprintln(a.Stderr, "crannog: "+text)
	}
	return nil
}

// findCommand finds a command by its number, or the last one with a recording.
func findCommand(list []api.Recording, n string) (api.Recording, bool) {
	for _, v := range slices.Backward(list) {
		if n == "" && !v.Dropped || n == v.ID {
			return v, true
		}
	}
	return api.Recording{}, false
}

// remark describes what a replay cannot show. It returns "" if there is nothing.
func remark(r api.Recording) string {
	var parts []string
	if r.Truncated {
		parts = append(parts, "the rest of its output was not recorded")
	}
	switch {
	case r.Lost:
		parts = append(parts, "the server or the sandbox ended before the command; later output was not recorded")
	case r.EndedAt.IsZero():
		parts = append(parts, "it has not ended")
	}
	if len(parts) == 0 {
		return ""
	}
	return "command " + r.ID + ": " + strings.Join(parts, "; ")
}

// errNothingYet is returned for the recording of a command without output so far.
var errNothingYet = errors.New("the recording is empty")

// play prints a recording to out. It passes on only drawing sequences, because a sandbox's output
// must not control the viewer's terminal in other ways.
func (p *player) play(ctx context.Context, recording io.Reader, out io.Writer) (err error) {
	first := make([]byte, 1)
	if n, err := io.ReadFull(recording, first); n == 0 && errors.Is(err, io.EOF) {
		return errNothingYet
	}
	r, err := asciicast.NewReader(io.MultiReader(strings.NewReader(string(first)), recording))
	if err != nil {
		return err
	}
	var screen asciicast.Screen
	defer func() {
		if undo := screen.Restore(); undo != "" && isTerminal(out) {
			_, e := io.WriteString(out, undo)
			err = errors.Join(err, e)
		}
	}()
	var text []byte
	var at time.Duration
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, asciicast.ErrCut) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.wait(ctx, e.At-at); err != nil {
			return err
		}
		at = e.At
		if e.Code != asciicast.Output {
			continue
		}
		text = screen.Append(text[:0], e.Data)
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
}

// wait waits until the time of the next event.
func (p *player) wait(ctx context.Context, d time.Duration) error {
	if !p.paced {
		return ctx.Err()
	}
	if p.idle > 0 {
		d = min(d, p.idle)
	}
	timer := time.NewTimer(time.Duration(float64(d) / p.speed))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
