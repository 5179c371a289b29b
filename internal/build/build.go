// Package build owns builds of images from Dockerfiles: their requests, contexts and records. Only
// the image and the cache outlive a build.
package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/records"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Sandboxes run the commands of builds.
type Sandboxes interface {
	// Runner returns a runner for the commands of one build. It runs them on behalf of the build's
	// caller and under the caller's policy.
	Runner(caller sandbox.Principal, id string, access sandbox.Access, limits sandbox.Limits) solve.Runner
	// Clean removes sandboxes of builds whose process has died.
	Clean(ctx context.Context, id string) error
}

// Request describes what to build.
type Request struct {
	Tag        string // name of the image
	Dockerfile []byte
	Target     string
	Platform   string
	Args       map[string]string
	Secrets    map[string][]byte
	NoCache    bool
	Epoch      time.Time // SOURCE_DATE_EPOCH; zero means that it is not set
	Push       bool
	Provenance bool // sign a statement about the build
	Access     sandbox.Access
	Limits     sandbox.Limits
}

// Options are the directory and the dependencies of a Service.
type Options struct {
	Dir       string
	Library   *library.Library
	Sandboxes Sandboxes
	Audit     *auditlog.Log
	Log       *slog.Logger
	// Signing signs statements about builds. The zero value signs nothing.
	Signing Signing
}

// Service builds images. It is safe for concurrent use.
type Service struct {
	o       Options
	cache   *stepcache.Cache
	records records.Store[Record]
	self    sandbox.Process
	mu      sync.Mutex
	live    map[string]*liveBuild
}

// liveBuild is a build of this process that has not ended.
type liveBuild struct {
	caller   sandbox.Principal
	req      Request
	plan     *dockerfile.Plan
	warnings []dockerfile.Warning
	upload   sync.Mutex
	cancel   context.CancelCauseFunc // nil until it runs
}

// Open opens the builds of a state directory. Builds of processes that died are marked as failed,
// and their files are removed.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{o: o, live: map[string]*liveBuild{}}
	var err error
	if s.self, err = sandbox.ThisProcess(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"work", "mounts", "records"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("builds: %w", err)
		}
	}
	if s.cache, err = stepcache.Open(filepath.Join(o.Dir, "cache")); err != nil {
		return nil, err
	}
	s.records = records.Store[Record]{Dir: filepath.Join(o.Dir, "records")}
	o.Library.KeepBlobs(s.cache.Blobs)
	return s, s.repair(ctx)
}

// repair removes files of processes that died.
func (s *Service) repair(ctx context.Context) error {
	return s.records.Repair(s.work(""), func(r Record) error {
		r.end(fault.New(fault.Unavailable, "build_interrupted", "the process that built it has ended"))
		return errors.Join(s.o.Sandboxes.Clean(ctx, r.ID), s.records.Put(r))
	})
}

// Cache returns the results of steps, which all builds of the state directory share.
func (s *Service) Cache() *stepcache.Cache { return s.cache }

// Mounts returns the directory of cache mounts.
func (s *Service) Mounts() string { return filepath.Join(s.o.Dir, "mounts") }

// work returns the directory with the files of a build.
func (s *Service) work(id string) string { return filepath.Join(s.o.Dir, "work", id) }

// maxLive bounds the number of builds in one process that wait for their context or run.
const maxLive = 32

// Create creates a build. The client uploads its context next.
func (s *Service) Create(_ context.Context, caller sandbox.Principal, req Request) (Record, []dockerfile.Warning, error) {
	if err := caller.Check(); err != nil {
		return Record{}, nil, err
	}
	if req.Push && !caller.OnHost() {
		return Record{}, nil, fault.New(fault.Denied, "local_only", "only a local caller may push, because a push uses this user's credentials")
	}
	if err := checkName(caller, req.Tag); err != nil {
		return Record{}, nil, err
	}
	if req.Provenance && s.o.Signing.Keys == nil {
		return Record{}, nil, fault.New(fault.Unsupported, "provenance_unavailable", "this server does not sign statements")
	}
	file, err := dockerfile.Parse(req.Dockerfile)
	if err != nil {
		return Record{}, nil, err
	}
	platform, err := manifest.ParsePlatform(req.Platform)
	if err != nil {
		return Record{}, nil, err
	}
	if platform.Architecture != manifest.Host().Architecture {
		return Record{}, nil, fault.Newf(fault.Unsupported, manifest.CodePlatform, "an image for %s cannot be built on this machine, which is %s", platform.String(), manifest.Host().String())
	}
	plan, err := file.Plan(dockerfile.Options{Target: req.Target, Args: req.Args, Platform: platform.String()})
	if err != nil {
		return Record{}, nil, err
	}
	s.dropStale()
	r := Record{ID: ids.New("d"), Owner: caller.KeyID, Tag: req.Tag, State: Waiting, Created: time.Now().UTC().Round(0), Process: s.self}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) >= maxLive {
		return Record{}, nil, fault.Newf(fault.Exhausted, "builds_many", "%d builds run or wait for their context, which is the limit", maxLive)
	}
	if err := s.records.Put(r); err != nil {
		return Record{}, nil, err
	}
	if err := os.Mkdir(s.work(r.ID), 0o700); err != nil {
		return Record{}, nil, err
	}
	s.live[r.ID] = &liveBuild{caller: caller, req: req, plan: plan, warnings: file.Warnings}
	return r, file.Warnings, nil
}

// waitForContext is how long a build waits for its client to run it.
const waitForContext = time.Hour

// dropStale fails builds that their client never ran.
func (s *Service) dropStale() {
	all, err := s.records.List()
	if err != nil {
		return
	}
	for _, r := range all {
		if r.State == Waiting && time.Since(r.Created) > waitForContext && r.Process == s.self {
			s.finish(r, fault.New(fault.Timeout, "build_abandoned", "the client uploaded no complete context in time"))
		}
	}
}

// finish ends a build and removes all its files except the image. A nil error means success.
func (s *Service) finish(r Record, why error) {
	s.mu.Lock()
	delete(s.live, r.ID)
	s.mu.Unlock()
	r.end(why)
	if err := errors.Join(s.records.Put(r), layer.RemoveTree(s.work(r.ID))); err != nil {
		s.o.Log.Warn("cannot remove the files of a build", "build", r.ID, "err", err)
	}
}

// find returns a build of this process that the caller may change.
func (s *Service) find(caller sandbox.Principal, id string) (*liveBuild, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.live[id]
	if l == nil || !caller.Local && l.caller.KeyID != caller.KeyID {
		return nil, notFound(id)
	}
	return l, nil
}

// notFound returns the error for a build that does not exist, or belongs to another caller.
func notFound(id string) error {
	return fault.Newf(fault.NotFound, "build_not_found", "unknown build %.50q", id)
}

// Upload appends a piece of the context, which is a tar. A piece that is sent twice is written
// once.
func (s *Service) Upload(_ context.Context, caller sandbox.Principal, id string, offset int64, data []byte) error {
	l, err := s.find(caller, id)
	if err != nil {
		return err
	}
	l.upload.Lock()
	defer l.upload.Unlock()
	if l.cancel != nil {
		return fault.New(fault.Conflict, "build_running", "the build is already running")
	}
	f, err := os.OpenFile(filepath.Join(s.work(id), "context.tar"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset != info.Size() {
		if offset+int64(len(data)) == info.Size() {
			return nil
		}
		return fault.Newf(fault.Conflict, "build_offset", "the context has %d bytes, and the piece begins at %d", info.Size(), offset)
	}
	_, err = f.WriteAt(data, offset)
	return errors.Join(err, f.Close())
}

// Cancel ends a build.
func (s *Service) Cancel(_ context.Context, caller sandbox.Principal, id string) error {
	l, err := s.find(caller, id)
	if err != nil {
		return err
	}
	canceled := fault.New(fault.Canceled, "build_canceled", "the build was canceled")
	l.upload.Lock()
	cancel := l.cancel
	l.upload.Unlock()
	if cancel != nil {
		cancel(canceled)
		return nil
	}
	r, err := s.Get(caller, id)
	if err != nil {
		return err
	}
	s.finish(r, canceled)
	return nil
}
