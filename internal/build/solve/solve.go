// Package solve owns the execution of a plan. Stages run concurrently, and the steps of a stage in
// order. The result of a step is taken from the cache if nothing that it depends on has changed.
package solve

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
)

// Images finds base images.
type Images interface {
	// Base returns an image whose blobs are in the store.
	Base(ctx context.Context, ref, platform string) (manifest.Image, error)
}

// Command is a command of RUN.
type Command struct {
	Tree string // the host directory that is its root
	// HostPrograms gives the command the programs of the host instead of Tree.
	HostPrograms bool
	Binds        []engine.Bind
	Args         []string
	Env          map[string]string
	Dir, User    string
	NoNetwork    bool
	Output       io.Writer
	// Changes is an empty file that receives the command's changes, in the format of
	// engine.Archiver.
	Changes *os.File
}

// Runner runs each command in a separate sandbox.
type Runner interface {
	// Run returns the exit code. If the command failed, nothing is written to Changes.
	Run(ctx context.Context, c Command) (int, error)
}

// Kind is what an Event reports.
type Kind string

// Kinds of events.
const (
	Started Kind = "started"
	Cached  Kind = "cached"
	Output  Kind = "output"
	Done    Kind = "done"
	Failed  Kind = "failed"
	Warning Kind = "warning"
)

// Event reports progress of a build.
type Event struct {
	Kind  Kind
	Step  int    // number of the step among those of all stages, from 1; 0 is the build itself
	Title string // of a step that starts
	Text  string
	Took  time.Duration
}

// Options are the choices of a caller.
type Options struct {
	NoCache bool
	// Epoch bounds the times in layers and is the time of the image. Zero means that it is not set.
	Epoch   time.Time
	Secrets map[string][]byte
	// Owner separates the caches of RUN --mount=type=cache.
	Owner string
	// Access describes what RUN may access. It is part of the cache key of a step.
	Access string
}

// Deps are the dependencies of a build.
type Deps struct {
	Blobs *blob.Store
	// Hold prevents the removal of blobs to which no name refers yet, until release is called.
	Hold   func(ctx context.Context) (release func(), err error)
	Cache  *stepcache.Cache
	Images Images
	Runner Runner
	// Work is an empty directory for this build. Mounts is the directory of cache mounts.
	Work, Mounts string
	// Context is the directory of the build context.
	Context string
	Limits  layer.Limits
	Report  func(Event)
	// Remote is called for each source of ADD that is not in the context, with the SHA-256 of a file
	// or the commit of a git repository. Both are "" if they are not known, and it may be called
	// again when they are. Nil means that nothing needs them.
	Remote func(uri, sha256, commit string)
}

// solver is one build.
type solver struct {
	Deps
	o       Options
	plan    *dockerfile.Plan
	context *os.Root
	mu      sync.Mutex
	steps   int
	stages  map[int]*stage
	images  map[string]*stage // by the reference of --from=IMAGE
}

// Result is a built image.
type Result struct {
	Config   *v1.ConfigFile
	Layers   []v1.Descriptor
	Warnings []dockerfile.Warning
}

// Build builds the target of a plan.
func Build(ctx context.Context, d Deps, plan *dockerfile.Plan, o Options) (Result, error) {
	root, err := os.OpenRoot(d.Context)
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	s := &solver{Deps: d, o: o, plan: plan, context: root, stages: map[int]*stage{}, images: map[string]*stage{}}
	for i, p := range plan.Stages {
		s.stages[i] = &stage{s: s, plan: p, name: stageName(p), done: make(chan struct{}), dir: filepath.Join(d.Work, "stage-"+strconv.Itoa(i))}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range s.stages {
		group.Go(func() error {
			for _, need := range one.plan.Needs {
				select {
				case <-s.stages[need].done:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := one.build(ctx); err != nil {
				return err
			}
			close(one.done)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	target := s.stages[plan.Target]
	return Result{Config: target.finished(), Layers: target.layers}, nil
}

// stageName returns the name of a stage for people.
func stageName(p *dockerfile.Stage) string {
	if p.Name != "" {
		return p.Name
	}
	return "stage-" + strconv.Itoa(p.Index)
}

// begin reports the start of a step, and returns a function that reports its end.
func (s *solver) begin(title string) (step int, end func(kind Kind, text string)) {
	s.mu.Lock()
	s.steps++
	step = s.steps
	s.mu.Unlock()
	started := time.Now()
	s.Report(Event{Kind: Started, Step: step, Title: title})
	return step, func(kind Kind, text string) {
		s.Report(Event{Kind: kind, Step: step, Text: text, Took: time.Since(started)})
	}
}

// stepOutput reports the output of a step.
type stepOutput struct {
	s    *solver
	step int
}

// Write implements io.Writer.
func (o stepOutput) Write(p []byte) (int, error) {
	o.s.Report(Event{Kind: Output, Step: o.step, Text: string(p)})
	return len(p), nil
}

// imageStage returns a stage that consists of an image only, for --from.
func (s *solver) imageStage(ctx context.Context, ref string) (*stage, error) {
	s.mu.Lock()
	one, ok := s.images[ref]
	if !ok {
		one = &stage{s: s, plan: &dockerfile.Stage{Base: ref, Parent: -1}, name: ref, dir: filepath.Join(s.Work, "image-"+strconv.Itoa(len(s.images)))}
		s.images[ref] = one
	}
	s.mu.Unlock()
	one.once.Do(func() { one.err = one.from(ctx) })
	return one, one.err
}

// source returns the stage to which --from refers.
func (s *solver) source(ctx context.Context, stage int, from string) (*stage, error) {
	if i, ok := s.plan.From(stage, from); ok {
		return s.stages[i], nil
	}
	return s.imageStage(ctx, from)
}
