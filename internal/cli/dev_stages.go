package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/fault"
)

// Names of the commands that run more than once.
const (
	stageStart  = "postStartCommand"
	stageAttach = "postAttachCommand"
)

// startStages runs the commands for a new sandbox that have not succeeded yet, and after a boot the
// one for each start. A command that fails keeps the later ones from running.
func (s *devSession) startStages(ctx context.Context, booted bool) error {
	for _, stage := range s.plan.Stages {
		done := slices.Contains(s.record.Done, stage.Title())
		if stage.Name == stageAttach || done && (stage.Name != stageStart || !booted) {
			continue
		}
		if err := s.stage(ctx, stage); err != nil {
			return err
		}
		if !done {
			s.record.Done = append(s.record.Done, stage.Title())
		}
		if err := s.save(); err != nil {
			return err
		}
	}
	return nil
}

// attachStages runs the command for each use.
func (s *devSession) attachStages(ctx context.Context) error {
	for _, stage := range s.plan.Stages {
		if stage.Name == stageAttach {
			if err := s.stage(ctx, stage); err != nil {
				return err
			}
		}
	}
	return nil
}

// codeStage is the fault code of a lifecycle command that failed.
const codeStage = "devcontainer_command_failed"

// stage runs one lifecycle command, all its parts at the same time. Its output is on standard
// error, because standard output belongs to the user's command.
func (s *devSession) stage(ctx context.Context, stage devcontainer.Stage) error {
	s.note("running %s", inert(stage.Title()))
	out := &sharedWriter{w: s.Stderr}
	if s.quiet {
		out.w = io.Discard
	}
	var group errgroup.Group
	for _, part := range stage.Command.Parts {
		name := inert(stage.Title())
		lines := &lineWriter{out: out}
		if part.Name != "" {
			name += " " + inert(part.Name)
			lines.prefix = "[" + inert(part.Name) + "] "
		}
		cmd := s.command(ctx, part.Args, false)
		cmd.Stdout, cmd.Stderr = lines, lines
		group.Go(func() error {
			defer lines.end()
			return stageError(name, cmd.Run())
		})
	}
	if err := group.Wait(); err != nil {
		return fail("run "+inert(stage.Title()), err).hint(fmt.Sprintf("the sandbox %s stays: crannog exec %s -- sh; crannog dev runs the command again", s.sb.ID(), s.sb.ID()))
	}
	return nil
}

func stageError(name string, err error) error {
	if err == nil {
		return nil
	}
	exit, ok := errors.AsType[*crannog.ExitError](err)
	if !ok {
		return err
	}
	return fault.Newf(fault.Conflict, codeStage, "%s failed with exit code %d", name, exit.ExitCode())
}

// sharedWriter lets several commands write whole lines to one stream.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// longestPiece bounds how much of a line is held back.
const longestPiece = 16 << 10

// lineWriter writes complete lines with a prefix. A program could otherwise write into the lines of
// another one.
type lineWriter struct {
	out    io.Writer
	prefix string
	mu     sync.Mutex
	held   []byte
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, b...)
	for {
		i := bytes.IndexByte(l.held, '\n')
		if i < 0 && len(l.held) < longestPiece {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.held) - 1
		}
		line := l.held[:i+1]
		l.held = l.held[i+1:]
		if err := l.print(line); err != nil {
			return 0, err
		}
	}
}

func (l *lineWriter) print(line []byte) error {
	_, err := io.WriteString(l.out, l.prefix+printable(strings.TrimRight(string(line), "\r\n"))+"\n")
	return err
}

// end writes a last line that has no end.
func (l *lineWriter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) > 0 {
		// If standard error is closed, there is no other place to report to.
		_ = l.print(l.held)
	}
	l.held = nil
}
