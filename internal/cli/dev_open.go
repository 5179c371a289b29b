package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/host/text"
)

// open continues the sandbox of the configuration, or creates one and runs the commands for a new
// one.
func (s *devSession) open(ctx context.Context, c *connection) error {
	if !c.local {
		return errDevRemote
	}
	s.conn = c
	release, err := s.lock()
	if err != nil {
		return err
	}
	defer release()
	if err := s.load(); err != nil {
		return err
	}
	digest, err := s.digest()
	if err != nil {
		return err
	}
	started, err := s.resume(ctx, digest)
	if err != nil {
		return err
	}
	if s.sb == nil {
		if err := s.create(ctx, digest); err != nil {
			return err
		}
		started = true
	}
	if err := s.resolveEnv(ctx); err != nil {
		return err
	}
	return s.startStages(ctx, started)
}

// resume finds the sandbox of the configuration, if it still exists. It reports whether the sandbox
// booted, so that its programs have to be started again.
func (s *devSession) resume(ctx context.Context, digest string) (booted bool, err error) {
	if s.record.Sandbox == "" {
		return false, nil
	}
	sb, err := s.conn.Get(ctx, s.record.Sandbox)
	switch {
	case errors.Is(err, crannog.ErrNotFound):
		s.record = devRecord{}
		return false, nil
	case err != nil:
		return false, fail("find the sandbox "+s.record.Sandbox, err)
	}
	info := sb.Info()
	if s.flags.rebuild || info.State == "stopped" || info.State == "stopping" {
		if info.State != "stopped" {
			if err := sb.Kill(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
				return false, fail("remove the sandbox "+sb.ID(), err)
			}
		}
		s.record = devRecord{}
		return false, nil
	}
	if info.State == "paused" || info.State == "pausing" {
		stop := s.progress("resuming " + label(info))
		err := sb.Resume(ctx, 0)
		stop()
		if err != nil {
			return false, fail("resume "+label(info), err)
		}
		booted = info.HostFiles == nil
	}
	if s.record.Digest != digest {
		s.note("%s has changed since the sandbox was created; --rebuild creates a new one", s.plan.File)
	}
	s.plan = s.record.Plan // it also has what features bring
	s.sb, s.record.continued = sb, true
	return booted, nil
}

func (s *devSession) create(ctx context.Context, digest string) error {
	if err := s.resolveFeatures(ctx); err != nil {
		return err
	}
	image, err := s.image(ctx)
	if err != nil {
		return err
	}
	if image, err = s.ownImage(ctx, image); err != nil {
		return err
	}
	f := &s.flags.create
	f.workspace, f.image = s.dir, image
	for _, name := range slices.Sorted(maps.Keys(s.plan.ContainerEnv)) {
		f.env = append(f.env, name+"="+s.plan.ContainerEnv[name])
	}
	opts, _, err := runVerbs{s.app}.sandboxOptions(ctx, f, s.conn)
	if err != nil {
		return err
	}
	for _, m := range s.plan.Mounts {
		opts = append(opts, crannog.Mount(api.Mount{Source: m.Source, Target: m.Target, ReadOnly: true}))
	}
	for _, v := range s.plan.Volumes {
		if err := s.volume(ctx, v.Name); err != nil {
			return err
		}
		opts = append(opts, crannog.Volume(api.VolumeMount{Name: v.Name, Target: v.Target, ReadOnly: v.ReadOnly}))
	}
	stop := s.progress("starting a sandbox from " + inert(image))
	s.sb, err = s.conn.Create(ctx, append(opts, crannog.Forever())...)
	stop()
	if err != nil {
		return fail("create a sandbox", err)
	}
	s.record = devRecord{Sandbox: s.sb.ID(), Digest: digest, Image: image, Plan: s.plan}
	if err := errors.Join(s.linkWorkspace(ctx), s.save()); err != nil {
		// Without its directory, or a record of it, the sandbox is of no use.
		return errors.Join(err, s.sb.Kill(context.WithoutCancel(ctx)))
	}
	s.note("created sandbox %s from %s", s.sb.ID(), inert(image))
	return nil
}

// volume creates a volume of the configuration, unless it exists. Like Docker's, it outlives the
// container.
func (s *devSession) volume(ctx context.Context, name string) error {
	_, err := s.conn.InspectVolume(ctx, name)
	if errors.Is(err, crannog.ErrNotFound) {
		if _, err = s.conn.CreateVolume(ctx, api.CreateVolume{Name: name}); err == nil {
			s.note("created volume %s", name)
		}
	}
	if err != nil {
		return fail("create the volume "+name, err)
	}
	return nil
}

// image pulls or builds the image of the configuration.
func (s *devSession) image(ctx context.Context) (string, error) {
	if s.plan.Build == nil {
		f := imageFlags{image: s.plan.Image}
		if s.flags.rebuild {
			f.pull = pullAlways
			if _, err := s.conn.InspectImage(ctx, f.image); err == nil && !strings.Contains(f.image, "/") {
				f.pull = "" // it may be an image of this machine only
			}
		}
		_, err := imageVerbs{s.app}.fetchImage(ctx, s.conn, &f, s.flags.create.engine)
		return s.plan.Image, err
	}
	b := s.plan.Build
	build := &buildFlags{file: b.Dockerfile, tag: s.imageName(), target: b.Target, noCache: false, accessFlags: s.flags.create.accessFlags}
	build.level = "" // of the sandbox; a build runs as root inside, which strict forbids
	for _, name := range slices.Sorted(maps.Keys(b.Args)) {
		build.args = append(build.args, name+"="+b.Args[name])
	}
	return build.tag, s.build(ctx, build, b.Context)
}

// imageName returns the name of the image that is built for the configuration.
func (s *devSession) imageName() string {
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(s.dir)))
	return "dev-" + base + "-" + s.plan.ID[40:]
}

func (s *devSession) build(ctx context.Context, f *buildFlags, dir string) error {
	t := templateVerbs{s.app}
	req, source, err := t.buildRequest(f, dir)
	if err != nil {
		return err
	}
	form := progressAuto
	if s.json {
		form = progressPlain
	}
	show, err := t.newBuildProgress(form)
	if err != nil {
		return err
	}
	defer show.end()
	if _, err := s.conn.Build(ctx, req, source, show.created, show.event); err != nil {
		return fail("build "+inert(req.Tag), err)
	}
	return nil
}

// linkScript makes links in place of missing or empty directories, and never removes a file.
const linkScript = `while [ $# -gt 0 ]; do
	if [ -d "$1" ] && [ ! -L "$1" ]; then rmdir "$1" || exit 1; fi
	if [ "${1%/*}" ]; then mkdir -p "${1%/*}" || exit 1; fi
	ln -sfn "$2" "$1" || exit 1
	shift 2
done`

// linkWorkspace makes the workspace visible at the paths of the configuration.
func (s *devSession) linkWorkspace(ctx context.Context) error {
	if len(s.plan.Links) == 0 {
		return nil
	}
	args := []string{"-c", linkScript, "sh"}
	for _, l := range s.plan.Links {
		args = append(args, l.At, l.To)
	}
	cmd := s.sb.CommandContext(ctx, "/bin/sh", args...)
	var out bytes.Buffer
	cmd.User, cmd.Dir, cmd.Stdout, cmd.Stderr = "root", "/", &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make the workspace visible at %s: %w: %s", s.plan.Links[0].At, err, text.Strict(out.String(), 500))
	}
	return nil
}

// resolveEnv inserts the variables of the sandbox into remoteEnv.
func (s *devSession) resolveEnv(ctx context.Context) error {
	inside := map[string]string{}
	for _, value := range s.plan.RemoteEnv {
		if value == nil || !strings.Contains(*value, "${containerEnv:") {
			continue
		}
		cmd := s.sb.CommandContext(ctx, "env")
		var out bytes.Buffer
		cmd.User, cmd.Dir, cmd.Stdout = s.plan.User, "/", &out
		if err := cmd.Run(); err != nil {
			return fail("read the variables of the sandbox", err)
		}
		for line := range strings.Lines(out.String()) {
			if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
				inside[name] = value
			}
		}
		break
	}
	for _, name := range slices.Sorted(maps.Keys(s.plan.RemoteEnv)) {
		value := s.plan.RemoteEnv[name]
		if value == nil {
			s.unset = append(s.unset, name)
			continue
		}
		resolved := devcontainer.Inside(*value, func(name string) (string, bool) { v, ok := inside[name]; return v, ok })
		s.remote = append(s.remote, name+"="+resolved)
	}
	return nil
}
