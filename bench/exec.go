package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// execFigures measures programs in an existing sandbox.
func execFigures(ctx context.Context, b *bench) (err error) {
	local, served, end, err := b.twoSandboxes(ctx, "exec")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	s, err := race(ctx, 2*b.n, reach(nameLocal, local), reach(nameServe, served))
	if err != nil {
		return err
	}
	b.report.add(table("exec", "a round trip to the guest that starts nothing", "ms", s, nameLocal, nameServe))
	for _, p := range []struct {
		name      string
		argv      []string
		hasTarget bool
	}{
		{"true", []string{"true"}, true},
		{"sh -c :", []string{"sh", "-c", ":"}, true},
		{"bash -l -c :, as E2B's SDKs run commands", []string{"/bin/bash", "-l", "-c", ":"}, false},
	} {
		s, err := race(ctx, 2*b.n, bare(nameBare, p.argv...),
			inSandbox(nameLocal, local, p.argv...), inSandbox(nameServe, served, p.argv...), byCall("POST /v1/…/exec", served, p.argv...))
		if err != nil {
			return err
		}
		sec := table("exec", p.name+" in a live sandbox", "ms", s, nameBare, nameLocal, nameServe, "POST /v1/…/exec")
		sec.against(nameBare)
		if base := sec.find(nameBare); base != nil && p.hasTarget {
			limit := base.P50 + 10
			for _, name := range []string{nameLocal, nameServe} {
				sec.target(name, "≤ bare + 10 ms", func(r row) bool { return r.P50 <= limit })
			}
		}
		b.report.add(sec)
	}
	return nil
}

// reach returns a contender that requests the list of running programs, which the guest answers
// without starting one.
func reach(name string, sb *crannog.Sandbox) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		if _, err := sb.Processes(ctx); err != nil {
			return err
		}
		s.addTime(name, time.Since(began))
		return nil
	}}
}

// inSandbox returns a contender that runs a program in a live sandbox.
func inSandbox(name string, sb *crannog.Sandbox, argv ...string) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		took, err := execTimed(ctx, sb, argv...)
		if err != nil {
			return err
		}
		s.addTime(name, took)
		return nil
	}}
}

// byCall returns a contender that runs a program with a single call of /v1, which waits and
// collects the output.
func byCall(name string, sb *crannog.Sandbox, argv ...string) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		result, err := sb.Exec(ctx, api.Exec{Cmd: argv})
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("%v: exit code %d", argv, result.ExitCode)
		}
		s.addTime(name, time.Since(began))
		return nil
	}}
}
