package build

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/sandbox"
)

// Run runs a build of Create whose context has been uploaded, and returns the image. When ctx ends,
// the build ends.
func (s *Service) Run(ctx context.Context, caller sandbox.Principal, id string, report func(solve.Event)) (library.Image, error) {
	l, err := s.find(caller, id)
	if err != nil {
		return library.Image{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.upload.Lock()
	running := l.cancel != nil
	if !running {
		l.cancel = cancel
	}
	l.upload.Unlock()
	if running {
		return library.Image{}, fault.New(fault.Conflict, "build_running", "the build is already running")
	}
	r, err := s.Get(caller, id)
	if err != nil {
		return library.Image{}, err
	}
	r.State = Running
	if err := s.records.Put(r); err != nil {
		return library.Image{}, err
	}
	ctx, action := s.o.Audit.Begin(ctx, caller.Actor(), "image.build", l.req.Tag)
	var used *inputs
	if l.req.Provenance {
		used = &inputs{}
	}
	img, err := s.build(ctx, l, id, used, report)
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(context.Cause(ctx), fault.Canceled, "build_canceled", "the build was canceled")
	}
	err = action.Finish(context.WithoutCancel(ctx), err)
	if err == nil {
		r.Digest = img.Digest.String()
		if used != nil {
			r.Provenance, err = s.attest(context.WithoutCancel(ctx), l, r, used)
		}
	}
	s.finish(r, err)
	return img, err
}

// serial returns a function that calls report for one event at a time, because stages report
// concurrently.
func serial(report func(solve.Event)) func(solve.Event) {
	lock := make(chan struct{}, 1)
	return func(e solve.Event) {
		lock <- struct{}{}
		defer func() { <-lock }()
		report(e)
	}
}

// build runs the build in its directory.
func (s *Service) build(ctx context.Context, l *liveBuild, id string, used *inputs, report func(solve.Event)) (library.Image, error) {
	work := s.work(id)
	from := filepath.Join(work, "context")
	// COPY of the whole context copies this mode too. Its parent is closed to other users.
	if err := errors.Join(os.Mkdir(from, 0o755), os.Chmod(from, 0o755)); err != nil {
		return library.Image{}, err
	}
	if err := s.unpack(ctx, filepath.Join(work, "context.tar"), from, used); err != nil {
		return library.Image{}, err
	}
	access, err := json.Marshal(l.req.Access)
	if err != nil {
		return library.Image{}, err
	}
	result, err := solve.Build(ctx, solve.Deps{
		Blobs: s.o.Library.Blobs(), Hold: s.o.Library.Hold, Cache: s.cache, Images: bases{s.o.Library, l.caller.OnHost(), used}, Remote: used.remote(),
		Runner: s.o.Sandboxes.Runner(l.caller, id, l.req.Access, l.req.Limits),
		Work:   work, Mounts: s.Mounts(), Context: from, Limits: s.o.Library.Limits(), Report: serial(report),
	}, l.plan, solve.Options{NoCache: l.req.NoCache, Epoch: l.req.Epoch, Secrets: l.req.Secrets, Owner: l.caller.KeyID, Access: string(access)})
	if err != nil {
		return library.Image{}, err
	}
	started := time.Now()
	report(solve.Event{Kind: solve.Started, Title: "name the image " + l.req.Tag})
	img, err := s.o.Library.AddBuilt(ctx, l.req.Tag, result.Config, result.Layers, func(library.Progress) {})
	if err != nil {
		return library.Image{}, err
	}
	report(solve.Event{Kind: solve.Done, Text: img.Digest.String(), Took: time.Since(started)})
	if l.req.Push {
		started, text := time.Now(), "push "+l.req.Tag
		report(solve.Event{Kind: solve.Started, Title: text})
		if err := s.o.Library.Push(ctx, l.req.Tag, "", func(library.Progress) {}); err != nil {
			return library.Image{}, err
		}
		report(solve.Event{Kind: solve.Done, Took: time.Since(started)})
	}
	return img, nil
}

// unpack reads the context, if there is one.
func (s *Service) unpack(ctx context.Context, file, dir string, used *inputs) error {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := used.readContext(f); err != nil {
		return err
	}
	if err := buildcontext.Unpack(ctx, f, dir, buildcontext.DefaultLimits); err != nil {
		return err
	}
	return os.Remove(file)
}

// bases finds base images on behalf of a caller.
type bases struct {
	library *library.Library
	mayPull bool
	used    *inputs
}

// Base implements solve.Images.
func (b bases) Base(ctx context.Context, ref, platform string) (manifest.Image, error) {
	img, err := b.library.Base(ctx, ref, platform, b.mayPull)
	if err == nil {
		b.used.addImage(ref, img.Digest.Hex)
	}
	return img, err
}
