package templatebuild

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/sandbox"
)

// Spec describes how to build a template.
type Spec struct {
	Image    string // the image to build on, or "" with Template
	Template string // the template to build on, or "" with Image
	Start    string // shell command of the program of its sandboxes, or ""
	Ready    string // shell command that succeeds once that program is ready, or ""
	Force    bool   // run all steps again
	Steps    []Step
}

// Start starts a build of Request whose files were uploaded. It returns before the build has ended;
// Status reports the end.
func (s *Service) Start(_ context.Context, caller sandbox.Principal, template, id string, spec Spec) error {
	if len(spec.Steps) > maxSteps {
		return fault.Newf(fault.Exhausted, "build_steps_many", "the template has %d steps, and the limit is %d", len(spec.Steps), maxSteps)
	}
	if (spec.Image == "") == (spec.Template == "") {
		return fault.New(fault.Invalid, "build_base_invalid", "a template is built from an image or from a template: name exactly one of them")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.findOwn(caller, template, id)
	if err != nil {
		return err
	}
	if l.cancel != nil {
		return fault.New(fault.Conflict, "build_running", "the build runs already")
	}
	if s.closed {
		return fault.New(fault.Unavailable, "server_closing", "the server is being stopped")
	}
	started := l.record
	started.State = Building
	if err := s.records.Put(started); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l.record, l.cancel = started, cancel
	s.running.Add(1)
	go s.work(ctx, l, spec)
	return nil
}

// work runs a build and records the result.
func (s *Service) work(ctx context.Context, l *liveBuild, spec Spec) {
	defer s.running.Done()
	ctx, action := s.o.Audit.Begin(ctx, l.caller.Actor(), "template.build", l.record.Name)
	step, err := s.build(ctx, l, spec)
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(context.Cause(ctx), fault.Canceled, "build_canceled", "the build was canceled")
	}
	done := context.WithoutCancel(ctx)
	err = action.Finish(done, errors.Join(err, layer.RemoveTree(s.dir(l)), s.forgetImage(done, l.record.ID)))
	if err != nil && fault.KindOf(err) == fault.Internal {
		s.o.Log.Error("template build failed", "build", l.record.ID, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, l.record.ID)
	s.finish(l, err, step)
	l.cancel(nil)
}

// dir returns the working directory of a build.
func (s *Service) dir(l *liveBuild) string { return filepath.Join(s.o.Dir, "work", l.record.ID) }

// imageName is the name of a build's image until a version of the template has it.
func imageName(id string) string { return "build.invalid/" + id }

// forgetImage removes the temporary name of a build's image.
func (s *Service) forgetImage(ctx context.Context, id string) error {
	_, err := s.o.Library.Remove(ctx, imageName(id))
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// build builds a template. It returns the failed step, as E2B's clients name it.
func (s *Service) build(ctx context.Context, l *liveBuild, spec Spec) (step string, err error) {
	b, err := s.base(ctx, l.caller, spec)
	if err != nil {
		return baseStep, err
	}
	p := &b.plan
	for i, one := range spec.Steps {
		if err := p.step(i+1, one); err != nil {
			return "", err
		}
	}
	work := s.dir(l)
	from := filepath.Join(work, "context")
	if err := os.MkdirAll(from, 0o700); err != nil {
		return "", err
	}
	for _, hash := range p.files {
		if err := s.unpack(ctx, l.caller, hash, from); err != nil {
			return "", err
		}
	}
	access, err := json.Marshal(l.req.Access)
	if err != nil {
		return "", err
	}
	platform := manifest.Host().String()
	result, err := solve.Build(ctx, solve.Deps{
		Blobs: s.o.Library.Blobs(), Hold: s.o.Library.Hold, Cache: s.o.Builds.Cache(), Images: b,
		Runner: s.o.Sandboxes.Runner(l.caller, l.record.ID, l.req.Access, l.req.Limits),
		Work:   work, Mounts: s.o.Builds.Mounts(), Context: from, Limits: s.o.Library.Limits(), Report: l.log.event,
	}, dockerfile.Steps(b.ref, platform, p.steps), solve.Options{Owner: l.caller.KeyID, Access: string(access)})
	if err != nil {
		return p.failed(err)
	}
	if _, err := s.o.Library.AddBuilt(ctx, imageName(l.record.ID), result.Config, result.Layers, func(library.Progress) {}); err != nil {
		return finalStep, err
	}
	req := catalog.Request{
		Template: l.record.Name + ":" + l.record.Tags[0], Tags: l.record.Tags[1:], ID: l.record.Template, Build: l.record.ID,
		Image: imageName(l.record.ID), Settings: catalog.Settings{Limits: l.req.Limits, Start: b.program(spec)},
	}
	if req.Settings.Limits == (sandbox.Limits{}) {
		req.Settings.Limits = b.limits
	}
	l.log.add("info", "create the template")
	if _, err := s.o.Catalog.Create(ctx, l.caller, req); err != nil {
		return finalStep, err
	}
	l.log.add("info", "the template is ready")
	return "", nil
}

// failed returns the client's step in which an instruction failed, and the error in terms of that
// step.
func (p *plan) failed(err error) (string, error) {
	one, ok := errors.AsType[*solve.StepError](err)
	if !ok || one.Step >= len(p.numbers) {
		return baseStep, err
	}
	cause, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return p.numbers[one.Step], err
	}
	text, title := cause.Text, p.steps[one.Step].Title
	for _, hash := range p.files {
		text = strings.ReplaceAll(text, hash+"/", "")
	}
	if !strings.HasPrefix(text, title) {
		text = title + ": " + text
	}
	return p.numbers[one.Step], fault.Wrap(err, cause.Kind, cause.Code, text)
}

// unpack reads an upload into a directory that its hash names.
func (s *Service) unpack(ctx context.Context, caller sandbox.Principal, hash, into string) error {
	name, err := s.files.path(caller, hash)
	if err != nil {
		return err
	}
	uploaded, err := s.files.has(name)
	if err != nil {
		return err
	}
	if !uploaded {
		return fault.Newf(fault.Conflict, "files_missing", "the files with the digest %s were not uploaded", hash)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := layer.Uncompress(f)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, buildcontext.CodeInvalid, "an upload is not a tar, or is not compressed with gzip")
	}
	defer plain.Close()
	dir := filepath.Join(into, hash)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return buildcontext.Unpack(ctx, plain, dir, buildcontext.DefaultLimits)
}

// base is the image or template that a template is built on.
type base struct {
	library *library.Library
	ref     string
	digest  string // of the image of a template, or ""
	plan    plan
	limits  sandbox.Limits
	start   *sandbox.Start
}

// Base implements solve.Images. It fetches no image, because callers with a key may not make the
// server do that.
func (b *base) Base(ctx context.Context, ref, platform string) (manifest.Image, error) {
	if b.digest == "" || ref != b.ref {
		img, err := b.library.Base(ctx, ref, platform, false)
		if fault.KindOf(err) == fault.NotFound {
			err = fault.Newf(fault.NotFound, "image_not_found", "the image %.200q is not on the server's machine, and clients of this API do not make the server fetch images", ref).
				WithHint("on that machine: crannog image pull " + ref)
		}
		return img, err
	}
	digest, err := v1.NewHash(b.digest)
	if err != nil {
		return manifest.Image{}, err
	}
	return manifest.Load(b.library.Blobs(), digest)
}

// hostBases are names of E2B's base image. On this server the template base shows the programs of
// the machine, which belong to no image, so a build starts from an image with one of these names.
var hostBases = []string{"e2bdev/base", "base", "code-interpreter-v1", "e2bdev/code-interpreter"}

// base resolves the image or the template that a build starts from.
func (s *Service) base(ctx context.Context, caller sandbox.Principal, spec Spec) (*base, error) {
	b := &base{library: s.o.Library, ref: spec.Image, plan: plan{force: spec.Force}}
	name := strings.TrimPrefix(strings.TrimSuffix(spec.Image, ":latest"), "docker.io/")
	if spec.Template == "" && !slices.Contains(hostBases, name) {
		return b, b.plan.defaults()
	}
	if spec.Template != "" {
		ref, err := sandbox.ParseReference(spec.Template)
		if err != nil {
			return nil, err
		}
		t, err := s.o.Templates.Resolve(ctx, ref)
		if err == nil && !caller.MayStart(t) {
			err = sandbox.TemplateUnknown(ref)
		}
		if err != nil {
			return nil, err
		}
		if t.ImageDigest != "" {
			return b, b.useTemplate(spec.Template, t)
		}
		name = ref.Path()
	}
	return b, s.hostBase(b, name)
}

// hostBase looks for an image with the name of a template that shows the programs of the machine.
func (s *Service) hostBase(b *base, name string) error {
	for _, candidate := range append([]string{name}, hostBases[:2]...) {
		if _, err := s.o.Library.Inspect(candidate); err == nil {
			b.ref = candidate
			return b.plan.defaults()
		} else if fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return fault.Newf(fault.Unsupported, "build_base_host", "%s shows the programs of the server's machine, which belong to no image, so nothing can be built on it", name).
		WithHint("name an image of the server with fromImage, or give one this name: crannog image import FILE --name base")
}

// useTemplate makes a template the base.
func (b *base) useTemplate(name string, t sandbox.Template) error {
	b.ref, b.digest, b.limits, b.start = name, t.ImageDigest, t.Limits, t.Start
	if t.DefaultUser == "" {
		return b.plan.defaults()
	}
	b.plan.inherit(t.DefaultUser, t.DefaultDir, t.Env)
	return nil
}

// idle is the program of a template that has a ready command and no program of its own.
var idle = []string{"/bin/sh", "-c", "while :; do sleep 86400; done"}

// program returns the program of the template's sandboxes. Without commands, it is the program of
// the template that this one is built on.
func (b *base) program(spec Spec) *sandbox.Start {
	if spec.Start == "" && spec.Ready == "" {
		return b.start
	}
	start := &sandbox.Start{Command: idle, Timeout: 10 * time.Minute}
	if b.start != nil {
		start.Command, start.Ready = b.start.Command, b.start.Ready
	}
	if spec.Start != "" {
		start.Command, start.Ready = loginCommand(spec.Start), nil
	}
	if spec.Ready != "" {
		start.Ready = loginCommand(spec.Ready)
	}
	return start
}
