package solve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// scriptPlace is the path of a here-document with its own interpreter line.
const scriptPlace = "/.crannog/build-script"

// run runs RUN, or takes its result from the cache.
func (g *stage) run(ctx context.Context, c *instructions.RunCommand, title string) error {
	script, err := dockerfile.ScriptOf(c, g.image.Config.Shell)
	if err != nil {
		return err
	}
	network := instructions.GetNetwork(c)
	if network == instructions.NetworkHost {
		return dockerfile.Refused(c, "--network=host is not possible in a sandbox")
	}
	if instructions.GetSecurity(c) == instructions.SecurityInsecure {
		return dockerfile.Refused(c, "--security=insecure is not possible in a sandbox")
	}
	if len(instructions.GetDevices(c)) > 0 {
		return dockerfile.Refused(c, "--device is not possible in a sandbox")
	}
	mounts, err := g.mounts(ctx, c)
	if err != nil {
		return err
	}
	env := g.runEnv()
	key := stepcache.Key("run", strings.Join(script.Args, "\x00"), script.File, strings.Join(dockerfile.Environ(env), "\x00"),
		g.image.Config.User, g.image.Config.WorkingDir, network, mounts.key, g.s.o.Access)
	maps.Copy(env, g.s.plan.Proxies())
	return g.cached(ctx, title, key, func(step int, w *layertar.Writer) error {
		return g.runCommand(ctx, c, script, env, network == instructions.NetworkNone, mounts, step, w)
	})
}

// runEnv returns the environment of a command: the image's, and the arguments of the stage.
func (g *stage) runEnv() map[string]string {
	env := map[string]string{}
	maps.Copy(env, g.args)
	for _, e := range g.image.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	return env
}

// runCommand runs a command in a sandbox, and writes its changes as a layer.
func (g *stage) runCommand(ctx context.Context, c *instructions.RunCommand, script dockerfile.Script, env map[string]string, offline bool, mounts mounts, step int, w *layertar.Writer) (err error) {
	tree, err := g.files(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(g.s.Work, "run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shown, release, err := mounts.show(ctx, dir, env)
	if err != nil {
		return err
	}
	defer release()
	args := script.Args
	if script.File != "" {
		path := filepath.Join(dir, "script")
		if err := os.WriteFile(path, []byte(script.File), 0o755); err != nil { //nolint:gosec // it is executed in the sandbox
			return err
		}
		shown = append(shown, shownFile{source: path, target: scriptPlace})
		args = []string{scriptPlace}
	}
	var places []stagetree.MountTarget
	for _, s := range shown {
		places = append(places, stagetree.MountTarget{Target: s.target, Directory: s.directory})
	}
	at, undo, err := tree.Prepare(g.image.Config.WorkingDir, places)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return err
	}
	var binds []engine.Bind
	for i, s := range shown {
		binds = append(binds, engine.Bind{Source: s.source, Target: "/" + at[i]})
	}
	changes, err := os.OpenFile(filepath.Join(dir, "changes.tar"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer changes.Close()
	user := g.image.Config.User
	if user == "" {
		user = "root"
	}
	code, err := g.s.Runner.Run(ctx, Command{
		Tree: tree.Dir, Binds: binds, Args: args, Env: env, Dir: g.image.Config.WorkingDir, User: user, NoNetwork: offline,
		Output: stepOutput{g.s, step}, Changes: changes,
	})
	if err != nil {
		return err
	}
	if code != 0 {
		return fault.Newf(fault.Invalid, "build_step_failed", "%s: the command ended with exit code %d", g.location, code).
			WithHint("see its output above; the steps before it are cached")
	}
	list, err := stagetree.ReadChanges(changes)
	if err != nil {
		return fmt.Errorf("read the changes of a command: %w", err)
	}
	for i, s := range shown {
		if s.keep == nil {
			continue
		}
		if err := s.keep(ctx, list.Below(at[i])); err != nil {
			return err
		}
	}
	return list.Write(w, tree, at)
}
