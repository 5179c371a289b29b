package solve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/manifest"
)

// stage is a stage that is being built.
type stage struct {
	s    *solver
	plan *dockerfile.Stage
	name string
	done chan struct{}
	once sync.Once
	err  error

	image  v1.ConfigFile
	layers []v1.Descriptor
	args   map[string]string
	ownCmd bool      // this stage has its own CMD
	made   time.Time // when the newest layer was made
	// location and fresh describe the current instruction: its place, for errors, and whether it
	// must run even if the cache has its result.
	location string
	fresh    bool

	mu      sync.Mutex // guards tree, which other stages use
	dir     string
	tree    *stagetree.Tree
	applied int
}

// build runs all instructions of the stage.
func (g *stage) build(ctx context.Context) error {
	if err := g.from(ctx); err != nil {
		return err
	}
	triggers := g.image.Config.OnBuild
	g.image.Config.OnBuild = nil
	for _, text := range triggers {
		c, err := dockerfile.ParseOne(text)
		if err != nil {
			return err
		}
		g.location = "ONBUILD " + text
		if err := g.step(ctx, c, "ONBUILD "+text); err != nil {
			return err
		}
	}
	for i, c := range g.plan.Commands {
		title := c.Name()
		if s, ok := c.(fmt.Stringer); ok {
			title = s.String()
		}
		g.location = g.plan.Location(i, c)
		if i < len(g.plan.Steps) {
			title, g.fresh = g.plan.Steps[i].Title, g.plan.Steps[i].Fresh
		}
		if err := g.step(ctx, c, title); err != nil {
			return &StepError{Step: i, Err: err}
		}
	}
	return nil
}

// StepError is the error of an instruction of a stage.
type StepError struct {
	Step int // counts the instructions of the stage from 0
	Err  error
}

// Error implements error.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the instruction's own error.
func (e *StepError) Unwrap() error { return e.Err }

// from starts the stage with the files that its FROM refers to.
func (g *stage) from(ctx context.Context) (err error) {
	g.args = map[string]string{}
	if g.plan.Parent >= 0 {
		parent := g.s.stages[g.plan.Parent]
		g.image, g.layers, g.made = *parent.image.DeepCopy(), slices.Clone(parent.layers), parent.made
		return nil
	}
	if strings.EqualFold(g.plan.Base, dockerfile.Scratch) {
		host := manifest.Host()
		g.image = v1.ConfigFile{OS: host.OS, Architecture: host.Architecture, RootFS: v1.RootFS{Type: "layers"}}
		g.image.Config.Env = []string{"PATH=" + defaultPath}
		return nil
	}
	_, end := g.s.begin("[" + g.name + "] FROM " + g.plan.Base)
	img, err := g.s.Images.Base(ctx, g.plan.Base, g.plan.Platform)
	if err != nil {
		end(Failed, fault.PublicText(err))
		return err
	}
	g.image, g.layers, g.made = *img.Config.DeepCopy(), slices.Clone(img.Manifest.Layers), img.Config.Created.Time
	g.image.Container, g.image.DockerVersion = "", "" //nolint:staticcheck // present images still have it
	if !slices.ContainsFunc(g.image.Config.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		g.image.Config.Env = append(g.image.Config.Env, "PATH="+defaultPath)
	}
	end(Done, img.Digest.String())
	return nil
}

// defaultPath is the PATH of images that set none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ returns the variables that words of the stage's instructions may use.
func (g *stage) environ() []string {
	all := maps.Clone(g.args)
	for _, e := range g.image.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	return dockerfile.Environ(all)
}

// chain returns an identifier of the stage's files so far.
func (g *stage) chain() string {
	parts := make([]string, 0, len(g.layers))
	for _, d := range g.image.RootFS.DiffIDs {
		parts = append(parts, d.String())
	}
	return stepcache.Key(parts...)
}

// files returns the stage's files as a directory. It unpacks layers that are not unpacked yet.
func (g *stage) files(ctx context.Context) (*stagetree.Tree, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tree == nil {
		t, err := stagetree.New(g.dir, g.s.Limits)
		if err != nil {
			return nil, err
		}
		g.tree = t
	}
	for ; g.applied < len(g.layers); g.applied++ {
		if err := g.tree.Apply(ctx, g.layers[g.applied].Digest, g.s.Blobs); err != nil {
			return nil, err
		}
	}
	return g.tree, nil
}

// history records an instruction in the image.
func (g *stage) history(text string, empty bool) {
	g.image.History = append(g.image.History, v1.History{CreatedBy: text, Created: v1.Time{Time: g.at()}, EmptyLayer: empty, Comment: "crannog"})
}

// at returns the time of the image so far, which is the time of its last layer. Thus a build that
// is completely cached produces the same image again.
func (g *stage) at() time.Time {
	if !g.s.o.Epoch.IsZero() {
		return g.s.o.Epoch
	}
	return g.made.UTC().Truncate(time.Second)
}

// finished returns the configuration of the complete image.
func (g *stage) finished() *v1.ConfigFile {
	c := g.image.DeepCopy()
	c.Created = v1.Time{Time: g.at()}
	if !g.s.o.Epoch.IsZero() {
		for i := range c.History {
			c.History[i].Created = c.Created
		}
	}
	return c
}

// cached adds the layer of a step to the image: the layer of an earlier build, or a new one from
// work.
func (g *stage) cached(ctx context.Context, title, key string, work func(step int, w *layertar.Writer) error) error {
	step, end := g.s.begin("[" + g.name + "] " + title)
	epoch := ""
	if !g.s.o.Epoch.IsZero() {
		epoch = g.s.o.Epoch.String()
	}
	key = stepcache.Key(g.chain(), epoch, key)
	if e, ok := g.s.Cache.Find(key); ok && !g.s.o.NoCache && !g.fresh && g.layerExists(e) {
		g.add(title, e)
		end(Cached, "")
		return nil
	}
	e, err := g.runStep(ctx, key, step, work)
	if err != nil {
		end(Failed, fault.PublicText(err))
		return err
	}
	g.add(title, e)
	end(Done, "")
	return nil
}

// layerExists reports whether the layer of an entry still exists.
func (g *stage) layerExists(e stepcache.Entry) bool {
	if e.Layer == nil {
		return true
	}
	size, ok := g.s.Blobs.Size(e.Layer.Digest)
	return ok && size == e.Layer.Size
}

// runStep runs a step and stores its result in the cache.
func (g *stage) runStep(ctx context.Context, key string, step int, work func(int, *layertar.Writer) error) (stepcache.Entry, error) {
	e := stepcache.Entry{Made: time.Now()}
	w, err := layertar.New(g.s.Work, g.s.o.Epoch)
	if err != nil {
		return e, err
	}
	defer w.Close()
	if err := work(step, w); err != nil {
		return e, err
	}
	// Without Hold, the layer could be pruned before the cache refers to it.
	release, err := g.s.Hold(ctx)
	if err != nil {
		return e, err
	}
	defer release()
	if w.Entries > 0 {
		l, err := w.Store(ctx, g.s.Blobs)
		if err != nil {
			return e, err
		}
		e.Layer = &l
	}
	return e, g.s.Cache.Put(key, e)
}

// add adds the result of a step to the image.
func (g *stage) add(title string, e stepcache.Entry) {
	if e.Made.After(g.made) {
		g.made = e.Made
	}
	g.history(title, e.Layer == nil)
	if e.Layer == nil {
		return
	}
	g.layers = append(g.layers, v1.Descriptor{MediaType: types.OCILayer, Digest: e.Layer.Digest, Size: e.Layer.Size})
	g.image.RootFS.DiffIDs = append(g.image.RootFS.DiffIDs, e.Layer.DiffID)
}

// step runs one instruction.
func (g *stage) step(ctx context.Context, c instructions.Command, title string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := g.s.plan.Expand(c, g.environ()); err != nil {
		return err
	}
	switch c := c.(type) {
	case *instructions.RunCommand:
		return g.run(ctx, c, title)
	case *instructions.CopyCommand:
		return g.copy(ctx, c, title)
	case *instructions.AddCommand:
		return g.addFiles(ctx, c, title)
	case *instructions.WorkdirCommand:
		return g.workdir(ctx, c, title)
	}
	if err := g.configure(c); err != nil {
		return err
	}
	if _, arg := c.(*instructions.ArgCommand); !arg {
		g.history(title, true)
	}
	return nil
}
