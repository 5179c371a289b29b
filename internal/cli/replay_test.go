package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/asciicast"
)

// newRecording returns a recording of the events that write adds.
func newRecording(t *testing.T, write func(*asciicast.Writer)) *bytes.Buffer {
	t.Helper()
	var recording bytes.Buffer
	w, err := asciicast.NewWriter(&recording, asciicast.Header{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return &recording
}

// A replay keeps the original times, or a fraction of them, and bounds pauses.
func TestReplayKeepsPace(t *testing.T) {
	for name, c := range map[string]struct {
		player player
		want   time.Duration
	}{
		"original pace": {player{speed: 1, paced: true}, 11 * time.Second}, "limited pauses": {player{speed: 1, idle: 2 * time.Second, paced: true}, 3 * time.Second},
		"faster": {player{speed: 10, paced: true}, 1100 * time.Millisecond}, "at once": {player{speed: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recording := newRecording(t, func(w *asciicast.Writer) {
					_ = w.Output(time.Second, 1, []byte("a\n"))
					_ = w.Resize(time.Second, 10, 10)
					_ = w.Output(11*time.Second, 2, []byte("b\x1b]52;c;eA==\a\n"))
					_ = w.Exit(11*time.Second, 0)
				})
				var out strings.Builder
				started := time.Now()
				if err := c.player.play(t.Context(), recording, &out); err != nil {
					t.Error(err)
				}
				if out.String() != "a\nb\n" || time.Since(started) != c.want {
					t.Errorf("play: got %q in %v", out.String(), time.Since(started))
				}
			})
		})
	}
}

func TestReplayErrors(t *testing.T) {
	p := player{speed: 1, paced: true}
	if err := p.play(t.Context(), strings.NewReader(""), &strings.Builder{}); !errors.Is(err, errNothingYet) {
		t.Errorf("play of an empty recording: error %v, want errNothingYet", err)
	}
	if err := p.play(t.Context(), strings.NewReader("no recording\n"), &strings.Builder{}); err == nil || errors.Is(err, errNothingYet) {
		t.Errorf("play of another file: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	recording := newRecording(t, func(w *asciicast.Writer) { _ = w.Output(time.Hour, 1, []byte("late")) })
	var out strings.Builder
	if err := p.play(ctx, recording, &out); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("play: error %v, got %q", err, out.String())
	}
	// An incomplete recording is shown up to its end.
	recording = newRecording(t, func(w *asciicast.Writer) { _ = w.Output(0, 1, []byte("whole")) })
	recording.WriteString(`[0.1,"o","cu`)
	if err := p.play(t.Context(), recording, &out); err != nil || out.String() != "whole" {
		t.Errorf("play: error %v, got %q", err, out.String())
	}
}

func TestCommandLine(t *testing.T) {
	three, at := 3, time.Unix(1700000000, 0)
	for want, c := range map[string]api.Recording{
		"command 1: command=sh -c \"a b\" exit=3 took=1.5s":         {ID: "1", How: "start", Command: []string{"sh", "-c", "a b"}, StartedAt: at, EndedAt: at.Add(1500 * time.Millisecond), ExitCode: &three},
		"command 2: command=python x=1 how=cell state=running":      {ID: "2", How: "cell", Command: []string{"python", "x=1"}, StartedAt: at},
		"command 3: command=x error=not_found how=exec took=0s":     {ID: "3", How: "exec", Command: []string{"x"}, StartedAt: at, EndedAt: at, Error: "not_found"},
		"command 4: command=x recording=dropped state=lost took=0s": {ID: "4", How: "start", Command: []string{"x"}, StartedAt: at, EndedAt: at, Lost: true, Dropped: true},
	} {
		e := commandLine(c)
		var got strings.Builder
		got.WriteString(e.Message + ":")
		for _, k := range sortedKeys(e.Fields) {
			got.WriteString(" " + k + "=" + e.Fields[k])
		}
		if got.String() != want || !e.At.Equal(at) {
			t.Errorf("commandLine: got %s, want %s", got.String(), want)
		}
	}
	list := []api.Recording{{ID: "1"}, {ID: "2"}, {ID: "3", Dropped: true}}
	for n, want := range map[string]string{"": "2", "1": "1", "3": "3", "4": ""} {
		if got, ok := findCommand(list, n); got.ID != want || ok != (want != "") {
			t.Errorf("findCommand(%q): got %q", n, got.ID)
		}
	}
}
