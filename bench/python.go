package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/crannog/crannog"
)

// busyLoop is a program that takes about two seconds and prints its duration without the
// interpreter's start.
const busyLoop = `import time
began = time.perf_counter()
total = 0
for i in range(%d):
    total = (total * 31 + i) %% 1000003
print(time.perf_counter() - began)`

// pythonFigures measures Python, the most frequent program of sandboxes.
func pythonFigures(ctx context.Context, b *bench) (err error) {
	if !found(b.python) {
		return fmt.Errorf("%s cannot be run; name the python3 of the sandboxes with -python", b.python)
	}
	client, err := b.local(ctx, "python")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	sb, err := client.Create(ctx, crannog.Ephemeral())
	if err != nil {
		return err
	}
	s, err := race(ctx, b.n, bare(nameBare, b.python, "-c", "pass"), inSandbox("sandbox", sb, b.python, "-c", "pass"))
	if err != nil {
		return err
	}
	sec := table("python", "python3 -c pass in a live sandbox", "ms", s, nameBare, "sandbox")
	sec.against(nameBare)
	sec.target("sandbox", "≤ 2.50× bare", func(r row) bool { return r.Ratio <= 2.5 })
	b.report.add(sec)

	rounds, err := loopLength(ctx, b.python)
	if err != nil {
		return err
	}
	code := fmt.Sprintf(busyLoop, rounds)
	s, err = race(ctx, b.fewer(4),
		contender{nameBare, func(ctx context.Context, s *scores) error {
			var out bytes.Buffer
			if err := hostCommand(ctx, &out, b.python, "-c", code); err != nil {
				return err
			}
			return s.addSeconds(nameBare, out.String())
		}},
		contender{"sandbox", func(ctx context.Context, s *scores) error {
			out, err := sb.CommandContext(ctx, b.python, "-c", code).Output()
			if err != nil {
				return err
			}
			return s.addSeconds("sandbox", string(out))
		}})
	if err != nil {
		return err
	}
	sec = table("python", "a loop that only computes, by its own clock", "ms", s, nameBare, "sandbox")
	sec.against(nameBare)
	sec.target("sandbox", "≤ 1.05× bare", func(r row) bool { return r.Ratio <= 1.05 })
	b.report.add(sec)
	return nil
}

// loopLength returns the number of iterations that take two seconds on this machine.
func loopLength(ctx context.Context, python string) (int, error) {
	const probe = 1_000_000
	var out bytes.Buffer
	if err := hostCommand(ctx, &out, python, "-c", fmt.Sprintf(busyLoop, probe)); err != nil {
		return 0, err
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
	if err != nil || took <= 0 {
		return 0, fmt.Errorf("%s printed %q as the duration of the loop", python, out.String())
	}
	return int(probe * 2 / took), nil
}

// addSeconds adds a duration that a program printed.
func (s *scores) addSeconds(name, text string) error {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.add(name, v*1000)
	return nil
}
