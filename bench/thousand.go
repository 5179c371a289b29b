package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/host/meminfo"
)

// bootsAtOnce is the number of sandboxes that are created at the same time. It is enough to keep
// two processors busy.
const bootsAtOnce = 4

// thousandFigures measures whether a server with very many idle sandboxes still answers, and what
// they cost.
func thousandFigures(ctx context.Context, b *bench) (err error) {
	srv, err := b.serve(ctx, b.crannog, "thousand", "--max-live", strconv.Itoa(b.idle+10))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	s := newScores()
	var sandboxes []*crannog.Sandbox
	free, err := available()
	if err != nil {
		return err
	}
	last := free
	quarter := max(b.idle/4, 1)
	began := time.Now()
	for len(sandboxes) < b.idle {
		more, err := inBatches(min(quarter, b.idle-len(sandboxes)), func() (*crannog.Sandbox, error) {
			return timed(s, "create", func() (*crannog.Sandbox, error) {
				return srv.client.Create(ctx, crannog.Timeout(time.Hour))
			})
		})
		sandboxes = append(sandboxes, more...)
		if err != nil {
			return fmt.Errorf("with %d sandboxes: %w", len(sandboxes), err)
		}
		if err := settledMemory(ctx); err != nil {
			return err
		}
		if err := measureRequests(ctx, s, srv.client, sandboxes); err != nil {
			return fmt.Errorf("with %d sandboxes: %w", len(sandboxes), err)
		}
		now, err := available()
		if err != nil {
			return err
		}
		s.add(fmt.Sprintf("memory that the machine lost, for each of sandboxes %d to %d, MB", len(sandboxes)-len(more)+1, len(sandboxes)), (last-now)/float64(len(more)))
		last = now
	}
	createTime := time.Since(began)
	sec := table("thousand", fmt.Sprintf("beside %d idle sandboxes", len(sandboxes)), "", s)
	sec.note("made %d at a time, with pauses to measure, in %.0f s; times in ms", bootsAtOnce, createTime.Seconds())
	if err := sec.idleCost(ctx, srv, sandboxes, (free-last)/float64(len(sandboxes))); err != nil {
		return err
	}
	began = time.Now()
	if _, err := inBatches(len(sandboxes), pop(sandboxes, func(sb *crannog.Sandbox) error { return sb.Kill(ctx) })); err != nil {
		return err
	}
	sec.note("all removed in %.0f s", time.Since(began).Seconds())
	b.report.add(sec)
	return nil
}

// idleCost adds notes about the memory and the processor time of all sandboxes together.
func (s *section) idleCost(ctx context.Context, srv *server, sandboxes []*crannog.Sandbox, lost float64) error {
	const mb = 1e6
	var sum memory
	var pids []int
	for _, sb := range sandboxes {
		p, err := processesOf(srv.state, sb.ID())
		if err != nil {
			return err
		}
		processes := p.all()
		one, err := pssOf(processes...)
		if err != nil {
			return err
		}
		sum.add(one)
		pids = append(pids, processes...)
	}
	server, err := pssOf(srv.cmd.Process.Pid)
	if err != nil {
		return err
	}
	n := float64(len(sandboxes))
	s.note("PSS of all sandboxes %.0f MB, of each %.1f MB: %.1f of the processes' own, %.1f of the sandbox's memory, %.1f of program files; the machine lost %.1f MB for each, so the rest is the host kernel's",
		float64(sum.all)/mb, float64(sum.all)/mb/n, float64(sum.anon)/mb/n, float64(sum.shmem)/mb/n, float64(sum.file)/mb/n, lost)
	threads, before := threadsAndTime(pids)
	const settleTime = 20 * time.Second
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settleTime):
	}
	_, after := threadsAndTime(pids)
	s.note("%d processes and %d threads; idle they use %.0f ms of processor time in a second, all together; the server has %.0f MB",
		len(pids), threads, 1e3*(after-before).Seconds()/settleTime.Seconds(), float64(server.all)/mb)
	return nil
}

// measureRequests measures the most frequent requests, on a server with many sandboxes.
func measureRequests(ctx context.Context, s *scores, client *crannog.Client, sandboxes []*crannog.Sandbox) error {
	const rounds = 10
	at := func(what string) string { return fmt.Sprintf("%s, with %d sandboxes", what, len(sandboxes)) }
	for round := range rounds {
		if _, err := timed(s, at("list all"), func() (any, error) {
			all, err := client.List(ctx, crannog.ListOptions{})
			if err == nil && len(all) != len(sandboxes) {
				err = fmt.Errorf("the list names %d sandboxes of %d", len(all), len(sandboxes))
			}
			return nil, err
		}); err != nil {
			return err
		}
		// The chosen sandboxes have run nothing for a while, and are spread over the whole list.
		sb := sandboxes[(round*len(sandboxes)/rounds+round)%len(sandboxes)]
		for _, what := range []string{"exec of `true`, first in its sandbox", "exec of `true`, second in its sandbox"} {
			took, err := execTimed(ctx, sb, "true")
			if err != nil {
				return err
			}
			s.addTime(at(what), took)
		}
	}
	return nil
}

// timed calls a function and adds its duration.
func timed[T any](s *scores, name string, do func() (T, error)) (T, error) {
	began := time.Now()
	result, err := do()
	if err == nil {
		s.addTime(name, time.Since(began))
	}
	return result, err
}

// inBatches calls a function n times, with several calls at a time, and returns the results. After
// the first error no further call begins.
func inBatches[T any](n int, do func() (T, error)) ([]T, error) {
	var (
		mu    sync.Mutex
		all   []T
		first error
		group sync.WaitGroup
	)
	left := n
	for range min(bootsAtOnce, n) {
		group.Go(func() {
			for {
				mu.Lock()
				stop := first != nil || left <= 0
				left--
				mu.Unlock()
				if stop {
					return
				}
				one, err := do()
				mu.Lock()
				if err == nil {
					all = append(all, one)
				} else if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all, first
}

// pop returns a function whose calls process the elements of a list one after the other.
func pop[T any](list []T, do func(T) error) func() (struct{}, error) {
	var mu sync.Mutex
	return func() (struct{}, error) {
		mu.Lock()
		one := list[0]
		list = list[1:]
		mu.Unlock()
		return struct{}{}, do(one)
	}
}

// settledMemory waits until sandboxes have released the memory that only their start needed.
func settledMemory(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * settleTime):
		return nil
	}
}

// available returns how much memory the host's kernel could still provide, in MB of a million bytes.
func available() (float64, error) {
	bytes, err := meminfo.Available()
	return float64(bytes) / 1e6, err
}

// threadsAndTime returns the number of threads of some processes, and the time for which they ran.
func threadsAndTime(pids []int) (threads int, ran time.Duration) {
	for _, pid := range pids {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue // the process has ended
		}
		threads += len(tasks)
		for _, task := range tasks {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
			if err != nil {
				continue
			}
			ns, _, _ := strings.Cut(string(data), " ")
			n, err := strconv.ParseInt(ns, 10, 64)
			if err == nil {
				ran += time.Duration(n)
			}
		}
	}
	return threads, ran
}
