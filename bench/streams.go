package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/crannog/crannog"
)

// streamSize is the amount of data that is sent through a command.
const streamSize = 256 << 20

// streamFigures measures data through the standard input and output of a command, compared with the
// same command on the host.
func streamFigures(ctx context.Context, b *bench) (err error) {
	local, served, end, err := b.twoSandboxes(ctx, "streams")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, transfer := range []struct {
		title   string
		in, out int64
		argv    []string
	}{
		{"into a command", streamSize, -1, []string{"wc", "-c"}},
		{"out of a command", 0, streamSize, []string{"dd", "if=/dev/zero", "bs=1M", fmt.Sprintf("count=%d", streamSize>>20), "status=none"}},
		{"through a command, both ways at once", streamSize, streamSize, []string{"cat"}},
	} {
		through := func(name string, run func(context.Context, io.Reader, io.Writer, ...string) error) contender {
			return contender{name, func(ctx context.Context, s *scores) error {
				var out counter
				began := time.Now()
				if err := run(ctx, io.LimitReader(zeros{}, transfer.in), &out, transfer.argv...); err != nil {
					return err
				}
				if transfer.out >= 0 && int64(out) != transfer.out {
					return fmt.Errorf("the command printed %d bytes", out)
				}
				s.add(name, rate(streamSize, time.Since(began)))
				return nil
			}}
		}
		inside := func(sb *crannog.Sandbox) func(context.Context, io.Reader, io.Writer, ...string) error {
			return func(ctx context.Context, in io.Reader, out io.Writer, argv ...string) error {
				cmd := sb.CommandContext(ctx, argv[0], argv[1:]...)
				cmd.Stdin, cmd.Stdout = in, out
				return cmd.Run()
			}
		}
		const host = "the same command on the host"
		s, err := race(ctx, b.fewer(4), through(host, hostCommandIn), through(nameLocal, inside(local)), through(nameServe, inside(served)))
		if err != nil {
			return err
		}
		sec := table("streams", "256 MiB "+transfer.title+" (more is better; p95 is the fast end)", "MB/s", s, host, nameLocal, nameServe)
		sec.against(host)
		for _, name := range []string{nameLocal, nameServe} {
			sec.target(name, "≥ 100 MB/s", func(r row) bool { return r.P50 >= 100 })
		}
		b.report.add(sec)
	}
	return nil
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
