package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/crannog/crannog"
)

// stateMemory measures the memory of sandboxes in each of their states.
func (b *bench) stateMemory(ctx context.Context, srv *server) error {
	const sandboxes = 10
	all, err := inBatches(sandboxes, func() (*crannog.Sandbox, error) {
		return srv.client.Create(ctx, crannog.Timeout(time.Hour))
	})
	if err == nil {
		err = b.memoryByState(ctx, srv, all)
	}
	return errors.Join(err, killAll(ctx, all))
}

// memoryByState measures the same sandboxes in one state after the other.
func (b *bench) memoryByState(ctx context.Context, srv *server, all []*crannog.Sandbox) error {
	var ids []string
	for _, sb := range all {
		ids = append(ids, sb.ID())
	}
	each := func(do func(*crannog.Sandbox) error) error {
		_, err := inBatches(len(all), pop(all, do))
		return err
	}
	s := newScores()
	for _, step := range []struct {
		name string
		do   func(*crannog.Sandbox) error
	}{
		{"idle", nil},
		{"holding Python", func(sb *crannog.Sandbox) error { return runCode(ctx, sb, "print(42)") }},
		{"holding Python and numpy", func(sb *crannog.Sandbox) error { return runCode(ctx, sb, numpyCode) }},
		{"paused", func(sb *crannog.Sandbox) error { return sb.Pause(ctx) }},
		{"resumed", func(sb *crannog.Sandbox) error { return sb.Resume(ctx, time.Hour) }},
	} {
		if step.name == "paused" {
			if err := s.addPaused(srv, step.name, ids, func() error { return each(step.do) }); err != nil {
				return err
			}
			continue
		}
		if step.do != nil {
			if err := each(step.do); err != nil {
				return err
			}
		}
		// Sandboxes release memory ten seconds after they were busy.
		if err := settledMemory(ctx); err != nil {
			return err
		}
		if err := settled(ctx, srv, ids); err != nil {
			return err
		}
		for _, id := range ids {
			if err := addPSS(s, step.name, srv.state, id); err != nil {
				return err
			}
		}
	}
	sec := table("state", "PSS of each of ten sandboxes", "MB", s)
	sec.tails99(s)
	sec.target("idle, without pages of program files", "≤ 20 MB", func(r row) bool { return r.P50 <= 20 })
	sec.target("paused", "0", func(r row) bool { return r.P95 == 0 })
	sec.note("a paused sandbox is searched by its kernel's name in the arguments of every process of the host; the same search found all of them just before")
	sec.note("the 99th percentile of ten values is close to the largest of them")
	b.report.add(sec)
	return nil
}

// addPaused measures the memory of paused sandboxes, which must be none. A search for a wrong name
// would also find nothing, so the search must first find all sandboxes while they run.
func (s *scores) addPaused(srv *server, name string, ids []string, pause func() error) error {
	var kernels []string
	for _, id := range ids {
		kernel, err := kernelOf(srv.state, id)
		if err != nil {
			return err
		}
		sum, err := pssNamed(kernel)
		if err == nil && sum.all == 0 {
			err = fmt.Errorf("sandbox %s runs, but no process has %s in its arguments", id, kernel)
		}
		if err != nil {
			return err
		}
		kernels = append(kernels, kernel)
	}
	if err := pause(); err != nil {
		return err
	}
	for _, kernel := range kernels {
		sum, err := pssNamed(kernel)
		if err != nil {
			return err
		}
		s.add(name, float64(sum.all)/1e6)
	}
	return nil
}

// kernelOf reads the name of a sandbox's kernel from the engine's file. It differs from the
// sandbox's ID if the sandbox uses a prestarted kernel.
func kernelOf(state, id string) (string, error) {
	data, err := engineRecord(state, id)
	if err != nil {
		return "", err
	}
	var record struct{ Kernel string }
	if err := json.Unmarshal(data, &record); err != nil {
		return "", err
	}
	if record.Kernel == "" {
		return "", fmt.Errorf("the engine's file about sandbox %s names no kernel", id)
	}
	return record.Kernel, nil
}

// pssNamed returns the memory of the processes whose arguments contain a name.
func pssNamed(name string) (memory, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return memory{}, err
	}
	var pids []int
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte(name)) {
			continue // the process has ended, or belongs to another user
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return memory{}, err
		}
		pids = append(pids, pid)
	}
	return pssOf(pids...)
}

// addPSS adds the memory of a sandbox's processes under a name.
func addPSS(s *scores, name, state, id string) error {
	p, err := processesOf(state, id)
	if err != nil {
		return err
	}
	sum, err := pssOf(p.all()...)
	if err != nil {
		return err
	}
	s.add(name, float64(sum.all)/1e6)
	s.add(name+", without pages of program files", float64(sum.all-sum.file)/1e6)
	return nil
}
