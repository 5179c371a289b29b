package devcontainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// Artifact is a feature of a registry.
type Artifact struct {
	Digest      string
	Description []byte // its devcontainer-feature.json
}

// Install is a feature that has to be installed.
type Install struct {
	Reference string `json:"reference"`
	// Source is the reference by which the feature is fetched, if that is another one.
	Source    string   `json:"source,omitempty"`
	Version   string   `json:"version,omitempty"`
	DependsOn []string `json:"depends_on,omitempty"`
	// Local is the directory of the feature's files on the host, or "" for a feature of a registry.
	Local     string            `json:"local,omitempty"`
	Digest    string            `json:"digest,omitempty"`
	Variables []string          `json:"variables,omitempty"` // of its installation script
	Env       map[string]string `json:"container_env,omitempty"`
}

// ResolveFeatures finds the plan's features and those that they depend on, and adds what they
// bring: the installation in its order, variables, mounts and commands. find returns a feature of a
// registry. As in Make, one error names everything that is not supported.
func (plan *Plan) ResolveFeatures(ctx context.Context, o Options, find func(ctx context.Context, reference string) (Artifact, error)) error {
	if len(plan.Features) == 0 {
		return nil
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	p := &planner{options: o, root: root, plan: *plan}
	r := resolver{planner: p, find: find}
	for _, request := range plan.Features {
		if _, err := r.add(ctx, request, nil); err != nil {
			return err
		}
	}
	order, err := inOrder(r.all, plan.FeatureOrder)
	if err != nil {
		return err
	}
	p.addFeatures(order)
	if err := unsupported(plan.File, p.problems); err != nil {
		return err
	}
	*plan = p.plan
	return nil
}

// resolver collects features.
type resolver struct {
	*planner
	find func(ctx context.Context, reference string) (Artifact, error)
	all  []feature
}

// add adds a feature and its dependencies, unless the same one is there, and returns its index.
// path has the features that led to it.
func (r *resolver) add(ctx context.Context, request Request, path []string) (int, error) {
	name := "features (" + request.Reference + ")"
	if slices.Contains(path, request.Reference) {
		return 0, fault.Newf(fault.Invalid, CodeInvalid, "%s depends on itself", name)
	}
	f := feature{request: request}
	data, err := r.read(ctx, request, &f)
	if err != nil {
		return 0, err
	}
	if f.description, err = r.describe(name, data); err != nil {
		return 0, err
	}
	f.variables = r.optionVariables(name, f.description, request.Settings)
	if i := slices.IndexFunc(r.all, f.sameAs); i >= 0 {
		return i, nil
	}
	if len(r.all) >= maxFeatures {
		return 0, fault.Newf(fault.Invalid, CodeInvalid, "the configuration has more than %d features, with those that they depend on", maxFeatures)
	}
	index := len(r.all)
	r.all = append(r.all, f)
	path = append(slices.Clone(path), request.Reference)
	for _, ref := range slices.Sorted(maps.Keys(f.description.DependsOn)) {
		dependency, ok := r.request(ref, f.description.DependsOn[ref])
		if !ok {
			continue // it was refused
		}
		i, err := r.add(ctx, dependency, path)
		if err != nil {
			return 0, err
		}
		r.all[index].needs = append(r.all[index].needs, i)
	}
	return index, nil
}

// read returns the description of a feature.
func (r *resolver) read(ctx context.Context, request Request, f *feature) ([]byte, error) {
	if request.Local == "" {
		found, err := r.find(ctx, r.plan.source(request.Reference))
		if err != nil {
			return nil, err
		}
		f.digest = found.Digest
		return found.Description, r.checkLocked(request.Reference, found.Digest)
	}
	// os.Root follows no link out of the workspace.
	rel, err := filepath.Rel(r.options.Dir, request.Local)
	if err != nil {
		return nil, err
	}
	file, err := r.root.Open(filepath.Join(rel, "devcontainer-feature.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "%s has no devcontainer-feature.json", request.Reference)
	}
	if err != nil {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "the devcontainer-feature.json of %s cannot be opened: %v", request.Reference, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fault.Newf(fault.Invalid, CodeInvalid, "the devcontainer-feature.json of %s is not a regular file", request.Reference))
	}
	return io.ReadAll(io.LimitReader(file, maxDescription+1))
}

// addFeatures adds what the features bring to the plan.
func (p *planner) addFeatures(order []feature) {
	var stages []Stage
	for _, f := range order {
		d := f.description
		name := "features (" + f.request.Reference + ")"
		if d.Deprecated {
			p.plan.Notes = append(p.plan.Notes, f.request.Reference+" is deprecated, as its publisher says")
		}
		p.plan.Installs = append(p.plan.Installs, Install{
			Reference: f.request.Reference, Source: p.plan.source(f.request.Reference), Version: d.Version, DependsOn: slices.Sorted(maps.Keys(d.DependsOn)),
			Local: f.request.Local, Digest: f.digest, Variables: f.variables, Env: d.ContainerEnv,
		})
		for _, m := range d.Mounts {
			p.mount(fmt.Sprintf("%s, mounts (%s)", name, m.Target), m)
		}
		stages = append(stages, d.stages(f.request.Reference)...)
	}
	p.plan.Stages = inStageOrder(append(stages, p.plan.Stages...))
}
