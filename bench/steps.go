package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/embedded/guestbin"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server/standard"
)

// stepFigures measures the steps of a sandbox's life: first its calls, through the engine alone,
// the embedded service and a server; then its boot, as the engine logs it.
func stepFigures(ctx context.Context, b *bench) (err error) {
	marks := &bootMarks{}
	alone, err := openEngine(filepath.Join(b.dir, "steps-engine"), slog.New(marks))
	if err != nil {
		return err
	}
	client, err := b.local(ctx, "steps-local")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	srv, err := b.serve(ctx, b.crannog, "steps-serve")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()

	s, err := race(ctx, b.n, contender{"engine alone", alone.life},
		stepsOf(nameLocal, client, crannog.Ephemeral()), stepsOf(nameServe, srv.client))
	if err != nil {
		return err
	}
	b.addSteps(s)
	sec := table("steps", "where a boot's time goes, as the engine logs it at level debug", "ms", marks.scores())
	sec.note("prepare: the engine's file and control group. child: our binary started again. root: mounts and settings.")
	sec.note("kernel: gVisor's file server and kernel as processes. start: loopback, and the guest asked to start.")
	sec.note("guest: from the request to start it until it reports that it is ready. answer: the child's result and exit, at the same time as guest.")
	b.report.add(sec)
	return nil
}

// addSteps adds a table for each call.
func (b *bench) addSteps(s *scores) {
	for _, step := range []struct{ suffix, title string }{
		{" create", "create"}, {" exec", "first exec of `true`"}, {" again", "second exec of `true`"}, {" remove", "remove"},
	} {
		part := newScores()
		for _, name := range []string{"engine alone", nameLocal, nameServe} {
			for _, v := range s.by[name+step.suffix] {
				part.add(name, v)
			}
		}
		sec := table("steps", step.title, "ms", part)
		sec.against("engine alone")
		b.report.add(sec)
	}
}

// stepsOf returns a contender that measures the calls of one sandbox through the SDK.
func stepsOf(name string, client *crannog.Client, opts ...crannog.CreateOption) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		sb, err := client.Create(ctx, append(opts, crannog.Timeout(5*time.Minute))...)
		if err != nil {
			return err
		}
		s.addTime(name+" create", time.Since(began))
		for _, exec := range []string{" exec", " again"} {
			took, err := execTimed(ctx, sb, "true")
			if err != nil {
				return errors.Join(err, sb.Kill(ctx))
			}
			s.addTime(name+exec, took)
		}
		began = time.Now()
		err = sb.Kill(ctx)
		s.addTime(name+" remove", time.Since(began))
		return err
	}}
}

// singleEngine is an engine without the service, the store and the APIs.
type singleEngine struct {
	engine engine.Engine
	image  engine.Image
}

// openEngine opens the default engine with the host's files as image.
func openEngine(state string, log *slog.Logger) (*singleEngine, error) {
	engines, err := standard.Engines(standard.Options{State: state, Log: log})
	if err != nil {
		return nil, err
	}
	guestPath, err := guestbin.Path(filepath.Join(state, "guest"))
	if err != nil {
		return nil, err
	}
	ref, err := sandbox.ParseReference("base")
	if err != nil {
		return nil, err
	}
	t, err := template.NewHost(filepath.Join(state, "templates"), guestPath).Resolve(context.Background(), ref)
	if err != nil {
		return nil, err
	}
	return &singleEngine{engine: engines.Default(), image: t.Image}, nil
}

// life creates a sandbox, runs two commands and removes it.
func (l *singleEngine) life(ctx context.Context, s *scores) (err error) {
	const name = "engine alone"
	id := strings.ToLower(rand.Text()[:20])
	token := rand.Text()
	config, err := json.Marshal(guest.Config{
		SandboxID: id, Hostname: id, AccessToken: token, ControlToken: rand.Text(), DefaultUser: "user",
		EndAt: time.Now().Add(5 * time.Minute),
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.engine.Create(ctx, engine.Spec{ID: id, Hostname: id, Image: l.image, Boot: engine.Boot{Config: config}}); err != nil {
		return err
	}
	s.addTime(name+" create", time.Since(began))
	execErr := l.execs(ctx, s, id, token)
	began = time.Now()
	err = l.engine.Remove(ctx, id)
	s.addTime(name+" remove", time.Since(began))
	return errors.Join(execErr, err)
}

// execs runs two commands in a sandbox.
func (l *singleEngine) execs(ctx context.Context, s *scores, id, token string) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.engine.Dial(ctx, id, guestboot.Port)
	}}
	defer transport.CloseIdleConnections()
	guest := client.New(&http.Client{Transport: transport}, "http://guest", http.Header{"X-Access-Token": {token}})
	for _, exec := range []string{" exec", " again"} {
		began := time.Now()
		p, err := guest.Start(ctx, client.Spec{Cmd: "true"})
		if err != nil {
			return err
		}
		exit, err := p.Stream(io.Discard, io.Discard)
		if err != nil || exit.Code != 0 {
			return errors.Join(err, fmt.Errorf("true: exit code %d", exit.Code))
		}
		s.addTime("engine alone"+exec, time.Since(began))
	}
	return nil
}

// bootMarks is a log handler that keeps the duration of each step of a boot.
type bootMarks struct {
	mu    sync.Mutex
	boots []map[string]time.Duration
	order []string
}

var _ slog.Handler = (*bootMarks)(nil)

func (m *bootMarks) Enabled(context.Context, slog.Level) bool { return true }
func (m *bootMarks) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *bootMarks) WithGroup(string) slog.Handler            { return m }

func (m *bootMarks) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "sandbox booted" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	boot := map[string]time.Duration{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindDuration {
			if len(m.boots) == 0 {
				m.order = append(m.order, a.Key)
			}
			boot[a.Key] = a.Value.Duration()
		}
		return true
	})
	m.boots = append(m.boots, boot)
	return nil
}

// scores returns the durations without those of the first boot, which was the warm-up.
func (m *bootMarks) scores() *scores {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := newScores()
	for _, name := range m.order {
		for _, boot := range m.boots[min(1, len(m.boots)):] {
			s.addTime(name, boot[name])
		}
	}
	return s
}
