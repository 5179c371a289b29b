package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/crannog/crannog"
)

const (
	nameBare  = "bare"
	nameBwrap = "bwrap"
	nameStock = "stock runsc do"
	nameLocal = "crannog.Local"
	nameServe = "crannog serve, HTTP"
	nameRun   = "crannog run, whole process"
)

// createFigures measures the time from the creation to a program's first output, and to the removal
// of everything.
func createFigures(ctx context.Context, b *bench) (err error) {
	client, err := b.local(ctx, "create-local")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	srv, err := b.serve(ctx, b.crannog, "create-serve")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()

	all := []contender{lifeBare(nameBare, []string{"/bin/echo", "ok"}, nil)}
	if found("bwrap") {
		all = append(all, lifeBare(nameBwrap, bubblewrap("/bin/echo", "ok"), nil))
	}
	if found(b.runsc) {
		if err := os.MkdirAll(filepath.Join(b.dir, "stock"), 0o700); err != nil {
			return err
		}
		all = append(all, lifeBare(nameStock, b.stockDo("/bin/echo", "ok"), nil))
	}
	empty := filepath.Join(b.dir, "empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return err
	}
	all = append(all, lifeSandbox(nameLocal, client, crannog.Ephemeral()), lifeSandbox(nameServe, srv.client),
		lifeBare(nameRun, []string{b.crannog, "run", "--", "/bin/echo", "ok"}, &exec.Cmd{
			Dir: empty, Env: append(os.Environ(), "CRANNOG_STATE="+filepath.Join(b.dir, "create-run")),
		}))
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	for _, what := range []struct{ suffix, title string }{
		{first, "from nothing to the first byte of `echo ok`"},
		{whole, "the same, until the sandbox is removed again"},
	} {
		b.addLifetime(s, what.suffix, what.title)
	}
	return nil
}

// first and whole are the suffixes of the two scores of a lifetime.
const first, whole = " first", " whole"

// addLifetime adds the table of one of the two scores.
func (b *bench) addLifetime(s *scores, suffix, title string) {
	part := newScores()
	for _, name := range []string{nameBare, nameBwrap, nameStock, nameLocal, nameServe, nameRun} {
		for _, v := range s.by[name+suffix] {
			part.add(name, v)
		}
	}
	sec := table("create", title, "ms", part)
	if !found("bwrap") {
		sec.note("bwrap is not installed, so its row is missing")
	}
	if !found(b.runsc) {
		sec.note("no stock runsc: build it and name it with -runsc (bench/run.sh does)")
	}
	sec.against(nameStock)
	for _, name := range []string{nameLocal, nameServe} {
		if sec.find(nameStock) != nil {
			sec.target(name, "≤ 1.00× "+nameStock, func(r row) bool { return r.Ratio <= 1 })
		}
	}
	b.report.add(sec)
}

// lifeBare returns a contender that measures a host process that prints "ok". If like is set, the
// process gets its directory and environment.
func lifeBare(name string, argv []string, like *exec.Cmd) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		var out firstByte
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if like != nil {
			if path, err := filepath.Abs(argv[0]); err == nil {
				cmd.Path = path
			}
			cmd.Dir, cmd.Env = like.Dir, like.Env
		}
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		s.addTime(name+whole, time.Since(began))
		s.addTime(name+first, out.at.Sub(began))
		return out.requireOutput("ok")
	}}
}

// lifeSandbox returns a contender that measures a sandbox from Create to the end of Kill.
func lifeSandbox(name string, client *crannog.Client, opts ...crannog.CreateOption) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		var out firstByte
		began := time.Now()
		sb, err := client.Create(ctx, append(opts, crannog.Timeout(5*time.Minute))...)
		if err != nil {
			return err
		}
		cmd := sb.CommandContext(ctx, "/bin/echo", "ok")
		cmd.Stdout = &out
		err = cmd.Run()
		if err := errors.Join(err, sb.Kill(ctx)); err != nil {
			return err
		}
		s.addTime(name+whole, time.Since(began))
		s.addTime(name+first, out.at.Sub(began))
		return out.requireOutput("ok")
	}}
}
