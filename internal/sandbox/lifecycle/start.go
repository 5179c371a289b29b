package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// archiveName is the file of an image of files only.
const archiveName = "files.tar"

// archiveTimeout bounds a boot that unpacks files first.
const archiveTimeout = 10 * time.Minute

// source is what a machine starts from. The zero value is a first boot.
type source struct {
	saved sandbox.Saved
	// dir is where the state lies that is not an image, or "".
	dir   string
	renew guest.Renewal
	files bool // leave out what memory was saved with them
	// image is what the saved memory was of, where the machine has another.
	image *engine.Image
	// needs is what the state in dir refers to.
	needs   *sandbox.Needs
	replace bool   // the machine of the same ID
	again   bool   // it is not the sandbox's first machine
	reading bool   // it is only made to read the saved files
	request string // what the caller calls the request
	// search looks for keys in the workspace of a sandbox that is being created, or is nil.
	search *rootfs.KeySearch
}

// memory reports whether programs are restored, and not only files.
func (f source) memory() bool { return f.saved.Image != "" && !f.saved.FilesOnly && !f.files }

// from is the source that a snapshot is.
func fromSnapshot(n sandbox.Stored, renew guest.Renewal) source {
	return source{saved: n.SavedState(), renew: renew, again: true}
}

// machine is what the engine and the guest are asked for, as at the first
// time. It notes in the record what will be checked from inside.
func (s *Service) machine(r *sandbox.Row, p *policy.Policy) (engine.Spec, guest.Config) {
	b := r.Base
	return rootfs.ComposeCovered(r, sandbox.Template{
		ID: r.TemplateID, Image: b.Image, DefaultUser: b.DefaultUser, DefaultDir: b.DefaultDir, Env: b.Env, Revision: b.Revision, Tools: b.Tools,
		Older: sandbox.GuestKnows - b.Knows,
	}, p, s.engines.info(r.Engine), rootfs.CoveredOf(b), b.NoRoot, r.Hostname())
}

// fits refuses to let saved memory go on where it cannot.
func (s *Service) fits(ctx context.Context, name, templateID string, b sandbox.Base, from sandbox.Saved) error {
	if err := b.CheckRebuildable(); err != nil || from.FilesOnly {
		return err
	}
	c, err := s.engines.checkpointer(name)
	if err != nil {
		return err
	}
	if have := c.Format(); from.Format != have {
		return fault.Newf(fault.Conflict, "snapshot_format", "the state was saved in the format %q, and this engine restores only %q", from.Format, have).
			WithHint("one of files only would work: take it without memory where the sandbox runs, or use the version that saved this one")
	}
	return s.sameFiles(ctx, templateID, b, from.Needs)
}

// anew returns the base of an instance that restores no memory. It uses the current
// programs, of which the first is the guest.
func (s *Service) anew(ctx context.Context, templateID string, b sandbox.Base) (sandbox.Base, error) {
	t, err := s.templates.Resolve(ctx, sandbox.Reference{Name: templateID, Tag: sandbox.DefaultTag})
	if err != nil {
		return sandbox.Base{}, err
	}
	b.Image = b.Image.WithGuestOf(t.Image)
	programs, err := rootfs.Revision(b.Image)
	b.Revision, b.Knows = t.Revision+programs, sandbox.GuestKnows
	return b, err
}

// shownCopies are the files that a machine is shown in place of those of the host
// that have changed. Files are taken out of a memory also without.
func (s *Service) shownCopies(from source) ([]engine.Bind, error) {
	needs := from.needs
	if from.saved.Image != "" {
		needs = from.saved.Needs
	}
	list, missing, err := s.hostFiles.standIns(needs)
	if missing != "" && !from.files {
		return nil, otherPrograms(missing)
	}
	return list, err
}

// launch hands over to the engine. dir is saved memory, or "".
func (s *Service) launch(ctx context.Context, name string, spec engine.Spec, dir string, replace bool) error {
	if dir == "" && !replace {
		e, err := s.engines.Of(name)
		if err != nil {
			return err
		}
		return e.Create(ctx, spec)
	}
	c, err := s.engines.checkpointer(name)
	if err != nil {
		return err
	}
	defer s.pool.Load().Restored(name, spec)
	if replace {
		return c.Replace(ctx, spec, dir)
	}
	return c.Restore(ctx, spec, dir)
}

func noImages() error {
	return fault.New(fault.Unsupported, "state_unsupported", "this service keeps no state of sandboxes")
}
