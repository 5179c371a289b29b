package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog"
)

// firstNumpy is code that prints 42 with numpy, as the first request to a sandbox.
const firstNumpy = "import numpy; print(numpy.arange(3).sum() + 39)"

// loadedServer is a server whose interpreter sandboxes are created cold, or are warm with some
// languages loaded.
type loadedServer struct {
	*server
	name     string
	pooled   bool
	acquired int
}

// loadedFigures measures how much time loaded languages save the first caller of a sandbox, and
// what a warm sandbox with them costs.
func loadedFigures(ctx context.Context, b *bench) (err error) {
	var all []*loadedServer
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.close())
		}
	}()
	for _, l := range []loadedServer{
		{name: "a sandbox, cold"},
		{name: "from the pool, nothing loaded", pooled: true},
		{name: "from the pool, Python loaded", pooled: true},
		{name: "from the pool, Python and JavaScript loaded", pooled: true},
	} {
		flags := []string{"--max-live", "1000", "--verbose", "--pool", "2g", "--pool-languages", [...]string{"none", "none", "python", "python,javascript"}[len(all)]}
		if !l.pooled {
			flags[4] = "off"
		}
		if l.server, err = b.serve(ctx, b.crannog, fmt.Sprintf("loaded%d", len(all)), flags...); err != nil {
			return err
		}
		all = append(all, &l)
	}
	for _, first := range []struct{ title, language, code string }{
		{"numpy", "python", firstNumpy}, {"JavaScript", "javascript", languages[1].code},
	} {
		var turns []contender
		for _, l := range all {
			turns = append(turns, l.first(first.language, first.code))
		}
		s, err := race(ctx, b.n, turns...)
		if err != nil {
			return err
		}
		sec := table("loaded", "from nothing to the first answer of "+first.title, "ms", s)
		sec.tails99(s)
		sec.against(all[0].name)
		b.report.add(sec)
	}
	return b.loadedCosts(ctx, all[1:])
}

// first returns a contender that measures the first answer of a new sandbox.
func (l *loadedServer) first(language, code string) contender {
	return contender{l.name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		sb, err := l.acquire(ctx, &began)
		if err != nil {
			return err
		}
		err = runCode(ctx, sb, code, crannog.Language(language))
		s.addTime(l.name, time.Since(began))
		return errors.Join(err, sb.Kill(ctx), l.rest(ctx))
	}}
}

// acquire creates a sandbox as the E2B clients do, and sets when it began. If the server has a
// pool, it first waits for a warm sandbox.
func (l *loadedServer) acquire(ctx context.Context, began *time.Time) (*crannog.Sandbox, error) {
	if l.pooled {
		if err := l.awaitMoreWarm(ctx, l.acquired); err != nil {
			return nil, err
		}
	}
	*began = time.Now()
	id, err := l.createE2B(ctx)
	if err != nil {
		return nil, err
	}
	l.acquired++
	if l.pooled {
		warmSandboxes, err := l.warmSandboxes()
		if _, ok := warmSandboxes[id]; err != nil || !ok {
			return nil, errors.Join(fmt.Errorf("sandbox %s was not warm", id), err)
		}
	}
	return l.client.Get(ctx, id)
}

// createE2B creates a sandbox over E2B's API and returns its ID.
func (l *loadedServer) createE2B(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/sandboxes", strings.NewReader(`{"templateID":"code-interpreter-v1","timeout":600}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-API-Key", l.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var created struct{ SandboxID string }
	if err := json.NewDecoder(resp.Body).Decode(&created); err != nil || resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("create: %s: %w", resp.Status, err)
	}
	return created.SandboxID, nil
}

// warmLog matches the server's log entry of a sandbox that became warm.
var warmLog = regexp.MustCompile(`msg="sandbox waits" sandbox=(\S+) kind="?code-interpreter-v1.* took=(\S+)`)

// awaitMoreWarm waits until the log shows more warm sandboxes of the template than the given
// number. A new server creates them last.
func (s *server) awaitMoreWarm(ctx context.Context, than int) error {
	for {
		warmSandboxes, err := s.warmSandboxes()
		if err != nil || len(warmSandboxes) > than {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refill / 4):
		}
	}
}

// warmSandboxes returns the sandboxes of the template that were warm so far, with the time that
// their creation took. The server must be verbose.
func (s *server) warmSandboxes() (map[string]time.Duration, error) {
	log, err := os.ReadFile(s.logs.Name())
	if err != nil {
		return nil, err
	}
	all := map[string]time.Duration{}
	for _, m := range warmLog.FindAllSubmatch(log, -1) {
		if all[string(m[1])], err = time.ParseDuration(string(m[2])); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// loadedCosts measures the memory of unused sandboxes, and the time to create one.
func (b *bench) loadedCosts(ctx context.Context, all []*loadedServer) (err error) {
	const sandboxes = 5
	sandboxLists := make([][]*crannog.Sandbox, len(all))
	defer func() {
		for _, list := range sandboxLists {
			err = errors.Join(err, killAll(ctx, list))
		}
	}()
	for i, l := range all {
		for range sandboxes {
			sb, err := l.acquire(ctx, new(time.Time))
			if err != nil {
				return err
			}
			sandboxLists[i] = append(sandboxLists[i], sb)
		}
	}
	if err := settledMemory(ctx); err != nil {
		return err
	}
	memory, took := newScores(), newScores()
	for i, l := range all {
		var ids []string
		for _, sb := range sandboxLists[i] {
			ids = append(ids, sb.ID())
		}
		if err := settled(ctx, l.server, ids); err != nil {
			return err
		}
		for _, id := range ids {
			if err := addPSS(memory, l.name, l.state, id); err != nil {
				return err
			}
		}
		warmSandboxes, err := l.warmSandboxes()
		if err != nil {
			return err
		}
		times := slices.Sorted(maps.Values(warmSandboxes))
		// Leave out the longest time: before the first sandbox, the server creates the template
		// snapshot.
		for _, d := range times[:len(times)-1] {
			took.addTime(l.name, d)
		}
	}
	b.report.add(table("loaded", fmt.Sprintf("PSS of each of %d unused sandboxes", sandboxes), "MB", memory))
	b.report.add(table("loaded", "until one more is warm, except for the first", "ms", took))
	return nil
}
