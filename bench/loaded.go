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

// firstNumpy prints 42 with numpy, as the first request to a sandbox.
const firstNumpy = "import numpy; print(numpy.arange(3).sum() + 39)"

// loader is a server whose interpreter sandboxes are warm with languages loaded, or not warm.
type loader struct {
	*server
	name    string
	waits   bool
	claimed int
}

// loadedFigures measures how much time loaded languages save the first caller of a sandbox, and
// their cost while it is warm.
func loadedFigures(ctx context.Context, b *bench) (err error) {
	var all []*loader
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.close())
		}
	}()
	for _, l := range []loader{
		{name: "a sandbox, cold"},
		{name: "from the pool, nothing loaded", waits: true},
		{name: "from the pool, Python loaded", waits: true},
		{name: "from the pool, Python and JavaScript loaded", waits: true},
	} {
		flags := []string{"--max-live", "1000", "--verbose", "--pool", "2g", "--pool-languages", [...]string{"none", "none", "python", "python,javascript"}[len(all)]}
		if !l.waits {
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

func (l *loader) first(language, code string) contender {
	return contender{l.name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		sb, err := l.claim(ctx, &began)
		if err != nil {
			return err
		}
		err = runCode(ctx, sb, code, crannog.Language(language))
		s.addTime(l.name, time.Since(began))
		return errors.Join(err, sb.Kill(ctx), l.rest(ctx))
	}}
}

// claim creates a sandbox as the E2B clients do and sets when it began. If the server has a pool,
// claim first waits until a sandbox is warm.
func (l *loader) claim(ctx context.Context, began *time.Time) (*crannog.Sandbox, error) {
	if l.waits {
		if err := l.moreWaited(ctx, l.claimed); err != nil {
			return nil, err
		}
	}
	*began = time.Now()
	id, err := l.createE2B(ctx)
	if err != nil {
		return nil, err
	}
	l.claimed++
	if l.waits {
		waited, err := l.waited()
		if _, ok := waited[id]; err != nil || !ok {
			return nil, errors.Join(fmt.Errorf("sandbox %s was not warm", id), err)
		}
	}
	return l.client.Get(ctx, id)
}

func (l *loader) createE2B(ctx context.Context) (string, error) {
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
	var made struct{ SandboxID string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("create: %s: %w", resp.Status, err)
	}
	return made.SandboxID, nil
}

var sandboxWaits = regexp.MustCompile(`msg="sandbox waits" sandbox=(\S+) kind="?code-interpreter-v1.* took=(\S+)`)

// moreWaited waits until the log shows more warm sandboxes of the template than the given number. A
// new server creates them last.
func (s *server) moreWaited(ctx context.Context, than int) error {
	for {
		waited, err := s.waited()
		if err != nil || len(waited) > than {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refill / 4):
		}
	}
}

// waited returns the sandboxes of the template that were warm, with the time that it took to create
// them. The server must be verbose.
func (s *server) waited() (map[string]time.Duration, error) {
	log, err := os.ReadFile(s.logs.Name())
	if err != nil {
		return nil, err
	}
	all := map[string]time.Duration{}
	for _, m := range sandboxWaits.FindAllSubmatch(log, -1) {
		if all[string(m[1])], err = time.ParseDuration(string(m[2])); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// loadedCosts measures the memory of unused sandboxes, and the time to create one.
func (b *bench) loadedCosts(ctx context.Context, all []*loader) (err error) {
	const sandboxes = 5
	held := make([][]*crannog.Sandbox, len(all))
	defer func() {
		for _, list := range held {
			err = errors.Join(err, killAll(ctx, list))
		}
	}()
	for i, l := range all {
		for range sandboxes {
			sb, err := l.claim(ctx, new(time.Time))
			if err != nil {
				return err
			}
			held[i] = append(held[i], sb)
		}
	}
	if err := settledMemory(ctx); err != nil {
		return err
	}
	memory, took := newScores(), newScores()
	for i, l := range all {
		var ids []string
		for _, sb := range held[i] {
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
		waited, err := l.waited()
		if err != nil {
			return err
		}
		times := slices.Sorted(maps.Values(waited))
		// The longest is that of the first, before which the template snapshot is created.
		for _, d := range times[:len(times)-1] {
			took.addTime(l.name, d)
		}
	}
	b.report.add(table("loaded", fmt.Sprintf("PSS of each of %d unused sandboxes", sandboxes), "MB", memory))
	b.report.add(table("loaded", "until one more is warm, except for the first", "ms", took))
	return nil
}
