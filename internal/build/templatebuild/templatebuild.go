// Package templatebuild owns builds of templates from steps, as clients of E2B's API send them:
// their requests, uploaded files, logs and results. The steps become a plan that package solve
// builds, and the image becomes a version of a template.
package templatebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/records"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Catalog creates versions of templates.
type Catalog interface {
	// Reserve checks the names of a version, and returns the ID of its template.
	Reserve(caller sandbox.Principal, name string, tags []string) (id string, ref sandbox.Reference, err error)
	Create(ctx context.Context, caller sandbox.Principal, req catalog.Request) (catalog.Template, error)
}

// Options are the directory and the dependencies of a Service.
type Options struct {
	Dir       string
	Library   *library.Library
	Builds    *build.Service // whose cache is used
	Sandboxes build.Sandboxes
	Catalog   Catalog
	Templates sandbox.Templates // from which a template may be built
	Audit     *auditlog.Log
	Log       *slog.Logger
}

// Request describes a template to build.
type Request struct {
	Name   string // [namespace/]name[:tag]
	Tags   []string
	Limits sandbox.Limits
	Access sandbox.Access // of the commands of the build
}

// Service builds templates. It is safe for concurrent use.
type Service struct {
	o       Options
	self    sandbox.Process
	records records.Store[Record]
	files   *files
	mu      sync.Mutex
	live    map[string]*liveBuild // by ID of the build
	closed  bool
	running sync.WaitGroup
}

// liveBuild is a build of this process that has not ended.
type liveBuild struct {
	caller sandbox.Principal
	req    Request
	record Record
	log    *journal
	cancel context.CancelCauseFunc // nil until it runs
}

// Open opens the builds of a state directory. Builds of processes that died are marked as failed,
// and their files are removed.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{o: o, live: map[string]*liveBuild{}}
	var err error
	if s.self, err = sandbox.ThisProcess(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"work", "records", "files"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("template builds: %w", err)
		}
	}
	s.records = records.Store[Record]{Dir: filepath.Join(o.Dir, "records"), Log: logSuffix}
	s.files = openFiles(filepath.Join(o.Dir, "files"), uploadLimits{one: maxUpload, all: maxUploads})
	return s, errors.Join(s.repair(ctx), s.files.prune())
}

// repair marks the builds of processes that died as failed, and removes their files.
func (s *Service) repair(ctx context.Context) error {
	return s.records.Repair(filepath.Join(s.o.Dir, "work"), func(r Record) error {
		r.end(fault.New(fault.Unavailable, "build_interrupted", "the server ended while the template was built"), "")
		return errors.Join(s.o.Sandboxes.Clean(ctx, r.ID), s.forgetImage(ctx, r.ID), s.records.Put(r))
	})
}

// Close cancels the builds and waits until all of them have ended.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.live {
		if l.cancel != nil {
			l.cancel(fault.New(fault.Unavailable, "build_interrupted", "the server ended while the template was built"))
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Limits of builds: how many may not have ended, and how long a build waits until it is started.
const (
	maxLive     = 32
	waitForSpec = time.Hour
)

// Request begins a build. The client then uploads its files, and starts it with its steps.
func (s *Service) Request(_ context.Context, caller sandbox.Principal, req Request) (Record, error) {
	id, ref, err := s.o.Catalog.Reserve(caller, req.Name, req.Tags)
	if err != nil {
		return Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropStale()
	switch {
	case s.closed:
		return Record{}, fault.New(fault.Unavailable, "server_closing", "the server is being stopped")
	case len(s.live) >= maxLive:
		return Record{}, fault.Newf(fault.Exhausted, "builds_many", "%d builds run or wait to be started, which is the limit", maxLive)
	}
	// Concurrent builds of a new template share its ID.
	for _, l := range s.live {
		if l.record.Name == ref.Path() && l.caller.KeyID == caller.KeyID {
			id = l.record.Template
		}
	}
	r := Record{
		ID: newUUID(), Template: id, Name: ref.Path(), Tags: tagsOf(ref, req.Tags), Owner: caller.KeyID, Limits: req.Limits,
		State: Waiting, Created: time.Now().UTC().Round(0), Process: s.self,
	}
	log, err := newJournal(s.records.Dir, r.ID)
	if err != nil {
		return Record{}, err
	}
	if err := errors.Join(s.records.Put(r), s.files.prune()); err != nil {
		return Record{}, errors.Join(err, log.close())
	}
	s.live[r.ID] = &liveBuild{caller: caller, req: req, record: r, log: log}
	return r, nil
}

// newUUID returns a random UUID.
func newUUID() string {
	id := ids.NewUUID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// tagsOf returns the tags that will lead to the version. The tag of the name counts if it has one,
// or if there are no others.
func tagsOf(ref sandbox.Reference, more []string) (tags []string) {
	if ref.Tag != sandbox.DefaultTag || len(more) == 0 {
		tags = append(tags, ref.Tag)
	}
	for _, tag := range more {
		if len(tags) == 0 || tags[0] != tag {
			tags = append(tags, tag)
		}
	}
	return tags
}

// dropStale fails builds that were never started. The caller holds s.mu.
func (s *Service) dropStale() {
	for id, l := range s.live {
		if l.cancel == nil && time.Since(l.record.Created) > waitForSpec {
			delete(s.live, id)
			s.finish(l, fault.New(fault.Timeout, "build_abandoned", "the build was never started"), "")
		}
	}
}

// finish records how a build ended. The caller has removed it from s.live.
func (s *Service) finish(l *liveBuild, why error, step string) {
	l.record.end(why, step)
	if why != nil {
		l.log.add("error", l.record.Error)
	}
	if err := errors.Join(l.log.close(), s.records.Put(l.record)); err != nil {
		s.o.Log.Warn("cannot record the end of a template build", "build", l.record.ID, "err", err)
	}
}

// findOwn returns a live build that a caller may change. The caller holds s.mu.
func (s *Service) findOwn(caller sandbox.Principal, template, id string) (*liveBuild, error) {
	l := s.live[id]
	if l == nil || l.record.Template != template || !caller.Local && l.caller.KeyID != caller.KeyID {
		return nil, notFound(id)
	}
	return l, nil
}

// notFound returns the error for a build that does not exist, or belongs to another caller.
func notFound(id string) error {
	return fault.Newf(fault.NotFound, "build_not_found", "there is no build %.50q of this template", id)
}
