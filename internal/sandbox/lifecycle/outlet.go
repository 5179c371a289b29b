package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// sinceStart is what changes are compared with if nothing else is named.
const sinceStart = "start"

// outlet is the source of a sandbox's changes: its current files, their earlier
// state, and the policy that decides which of them may be exported.
type outlet struct {
	record sandbox.Row
	policy *policy.Policy
	box    changeset.Box
	base   changeset.Base
	dir    string
	since  string
	kept   bool
	// git is the repository that the workspace shares, or nil. Its files are among the
	// changes under the name of a repository of the workspace's own.
	git *outlet
	// mask is of what comes out of a sandbox that there is. In what was kept of
	// one, all is masked already; masked are the files in which something was.
	mask   *sandbox.Mask
	masked map[string]changeset.Conflict
	undo   []func() error
	// Of the turn to compare: when it ends, and how it is given back.
	until time.Time
	done  func() error
	// scratch is a directory of ours for files that are only looked at; drop
	// removes it.
	scratch func() (dir *os.Root, drop func() error, err error)
}

// close lets go of everything, the last first.
func (o *outlet) close() error {
	var errs []error
	for _, f := range slices.Backward(o.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// compare is called once and ends the outlet's turn, so that no other export waits
// while a person decides about what it found.
func (o *outlet) compare(ctx context.Context, lines, text bool) (_ *changeset.Set, err error) {
	defer func() { err = errors.Join(err, o.done()) }()
	ctx, cancel := inTime(ctx, o.until)
	defer cancel()
	opts := changeset.Options{Dir: o.dir, Lines: lines, Text: text}
	if o.showsHost() {
		// What is hidden was covered or removed before any program ran: the sandbox did
		// not remove it, and its text is none that comes out.
		match := o.policy.Files().Matcher()
		opts.Protected = func(name string) bool { return match.Protected(path.Join(o.dir, name)) }
		ways := match.ProtectedWays()
		opts.Ways, opts.Start = ways, ways.Start(o.dir)
		hidden := hiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent))
		opts.Ignore = func(name string) bool {
			// The file that names the shared repository is the host's own.
			own := o.git != nil && isGit(name)
			name = path.Join(o.dir, name)
			return own || match.Denied(name) || hidden(name) != ""
		}
	}
	set, err := changeset.Compare(ctx, o.box, o.base, opts)
	if errors.Is(err, errGuestSilent) {
		return nil, errGuestSilent
	}
	if err != nil && ctx.Err() != nil {
		return nil, canceled(context.Cause(ctx))
	}
	if err == nil {
		if o.dir == sandbox.WorkspaceDir {
			err = o.judgeGit(ctx, set)
		}
		if err == nil && o.git != nil {
			err = o.addRepository(ctx, set, lines, text)
		}
		o.remember(set.Changes)
		set.Digest = changeset.Digest(set.Changes)
	}
	return set, err
}

// showsHost reports whether the directory is the workspace, or holds or is in a mount.
func (o *outlet) showsHost() bool {
	return o.dir == sandbox.WorkspaceDir || slices.ContainsFunc(o.record.Base.Mounts, func(m sandbox.Mount) bool { return overlap(o.dir, m.Target) })
}

// remember marks what was masked when it was kept.
func (o *outlet) remember(list []changeset.Change) {
	for i := range list {
		c := &list[i]
		conflict, masked := o.masked[c.Path]
		if !masked || c.New == nil || c.New.Type != changeset.Regular {
			continue
		}
		c.Flags = append(c.Flags, changeset.Masked)
		if c.Conflict == "" && c.Outside != nil {
			c.Conflict = conflict
		}
	}
}

// shown is what a caller may see of changes.
func (o *outlet) shown(list []changeset.Change) []changeset.Change {
	out := make([]changeset.Change, len(list))
	for i, c := range list {
		out[i] = c.Shown(o.box.Hide)
	}
	return out
}

// outlet finds what a request is about. It must be closed.
func (s *Service) outlet(ctx context.Context, who sandbox.Principal, ref string, req sandbox.ChangesRequest) (_ *outlet, err error) {
	o := &outlet{dir: req.Dir, since: req.Since, scratch: s.scratch}
	if o.dir == "" {
		o.dir = sandbox.WorkspaceDir
	}
	if o.since == "" {
		o.since = sinceStart
	}
	if !path.IsAbs(o.dir) || path.Clean(o.dir) != o.dir || o.dir == "/" {
		return nil, fault.New(fault.Invalid, "dir_invalid", "dir is an absolute path inside, without . and .., and not / itself")
	}
	if strings.HasPrefix(o.dir, sandbox.WorkspaceDir+"/") {
		// What is protected, named or run by itself is told by paths from the
		// workspace on, and the template knows nothing of what began there.
		return nil, fault.New(fault.Invalid, "dir_invalid", "what is below "+sandbox.WorkspaceDir+" is compared as a part of it").
			WithHint("leave the directory out, and name paths: crannog diff SANDBOX src/")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	r, err := s.resolve(ctx, who, ref)
	maybeKept := (isUnknown(err) || err == nil && r.State == sandbox.Stopped) && s.kept != nil
	if err != nil && !maybeKept {
		return nil, err
	}
	var waited error
	if o.until, o.done, waited = s.comparing.await(ctx); waited != nil {
		return nil, waited
	}
	o.undo = append(o.undo, o.done)
	ctx, cancel := inTime(ctx, o.until)
	defer cancel()
	if maybeKept {
		// One that is not forgotten is meant by its name too.
		if found, keptErr := s.keptOutlet(who, cmp.Or(r.ID, ref), o); found || keptErr != nil {
			return o, keptErr
		}
	}
	if err != nil {
		return nil, err
	}
	o.record = r
	if o.policy, err = s.compile(r.Access); err != nil {
		return nil, err
	}
	if err := s.openBox(ctx, o); err != nil {
		return nil, err
	}
	if o.since != sinceStart {
		return o, s.openSnapshot(ctx, who, o)
	}
	return o, s.openStart(ctx, o)
}

// openBox finds the sandbox's files as they are now. One that is paused is
// looked at in a copy.
func (s *Service) openBox(ctx context.Context, o *outlet) error {
	switch r := o.record; r.State {
	case sandbox.Running:
		var err error
		o.mask, err = s.Mask(ctx, r.ID)
		o.box = guestBox{s, r, o.mask}
		return err
	case sandbox.Paused:
		mask, err := s.veilOf(ctx, r)
		if err != nil {
			return s.maskUnavailable(r.ID, err)
		}
		box, drop, err := s.reading(ctx, r, r.Base, r.Limits, r.Workspace, r.Saved)
		if err != nil {
			return err
		}
		box.mask, o.mask = mask, mask
		o.box, o.undo = box, append(o.undo, drop)
		return nil
	case sandbox.Stopped:
		if s.kept != nil && s.kept.Has(r.ID) {
			return fault.Newf(fault.Conflict, "changes_expired", "the changes that were kept of sandbox %s have expired", r.ID)
		}
		return sandbox.NotRunning(r)
	case sandbox.Creating, sandbox.Stopping, sandbox.Pausing, sandbox.Resuming, sandbox.Waiting:
	}
	return notNow(o.record)
}

// openSnapshot makes a snapshot what the files are compared with.
func (s *Service) openSnapshot(ctx context.Context, who sandbox.Principal, o *outlet) error {
	n, err := s.findSnapshot(ctx, who, o.since)
	if err != nil {
		return err
	}
	o.since = n.ID
	box, drop, err := s.reading(ctx, o.record, n.Base, n.Limits, n.Workspace, n.SavedState())
	if err != nil {
		return err
	}
	o.undo = append(o.undo, drop)
	if err := s.fetchOld(ctx, o, box); err != nil || o.record.Base.Git == nil || o.dir != sandbox.WorkspaceDir {
		return err
	}
	o.git = o.part(o.record.Base.Git)
	err = s.fetchOld(ctx, o.git, box)
	o.undo = append(o.undo, o.git.undo...)
	return err
}

// openStart makes the sandbox's start what its files are compared with.
func (s *Service) openStart(ctx context.Context, o *outlet) error {
	if o.dir != sandbox.WorkspaceDir {
		return s.openTemplate(ctx, o)
	}
	r := o.record
	if r.Workspace == "" {
		return nil // it began empty
	}
	host, err := os.OpenRoot(r.Workspace)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.NotFound, "workspace_gone", "the directory that the sandbox shows is not there any more")
	case err != nil:
		return fmt.Errorf("open the workspace: %w", err)
	}
	o.undo = append(o.undo, host.Close)
	o.base.Outside = host
	if err := s.openManifest(o); err != nil {
		return err
	}
	if r.Base.Copy == "" {
		return s.openShared(ctx, o)
	}
	dir, err := s.copies.Find(r.Base.Copy)
	if err != nil {
		return err
	}
	was, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the copy of the workspace: %w", err)
	}
	o.undo = append(o.undo, was.Close)
	o.base.Content = was
	if o.base.Start, err = changeset.Walk(ctx, was, changeset.Bounds{}, nil); err != nil {
		return err
	}
	return s.openShared(ctx, o)
}

// openTemplate compares a directory other than the workspace with what the
// template has there. What is mounted below it on either side is left out.
func (s *Service) openTemplate(ctx context.Context, o *outlet) error {
	root := o.record.Base.Root
	if root.Dir == "" {
		return o.record.Base.CheckRebuildable()
	}
	source, rest := root.Dir, o.dir
	mounts, err := s.shownMounts(ctx, o.record, o.policy, o.record.Base.HostBinds(), true)
	if err != nil {
		return err
	}
	var below []string
	for _, b := range slices.Concat(root.Binds, mounts) {
		switch {
		case o.dir == b.Target || strings.HasPrefix(o.dir, b.Target+"/"):
			source, rest, below = b.Source, strings.TrimPrefix(o.dir, b.Target), nil
		case strings.HasPrefix(b.Target, o.dir+"/"):
			below = append(below, strings.TrimPrefix(b.Target, o.dir+"/"))
		}
	}
	top, err := os.OpenRoot(source)
	if err != nil {
		return fmt.Errorf("open the template: %w", err)
	}
	o.undo = append(o.undo, top.Close)
	was, err := top.OpenRoot(path.Join(".", rest)) // a mount of a file is none
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is all new
	}
	if err != nil {
		return fault.Wrap(err, fault.Unsupported, "dir_not_comparable", "the template's directory cannot be compared")
	}
	o.undo = append(o.undo, was.Close)
	o.base.Content = was
	o.base.Start, err = changeset.Walk(ctx, was, changeset.Bounds{}, func(name string) bool { return slices.Contains(below, name) })
	return err
}

// guestBox reads a running box's files through its guest. What leaves it by
// what is read here passes its mask.
type guestBox struct {
	s    *Service
	r    sandbox.Row
	mask *sandbox.Mask
}

// Hide implements changeset.Box.
func (b guestBox) Hide() changeset.Hider {
	if m := b.mask.Bytes(); m != nil {
		return m
	}
	return nil
}

// Tree implements changeset.Box.
func (b guestBox) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	return b.ask(ctx, guest.PathTree, req)
}

// Pack implements changeset.Box.
func (b guestBox) Pack(ctx context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	return b.ask(ctx, guest.PathPack, req)
}

// maxComplaint bounds what a guest may say about why it cannot.
const maxComplaint = 4 << 10

func (b guestBox) ask(ctx context.Context, where string, req any) (io.ReadCloser, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	res, err := awaited(ctx, func(ctx context.Context) (*http.Response, error) {
		return b.s.control(ctx, b.r, http.MethodPost, where, bytes.NewReader(body))
	})
	if err != nil {
		if errors.Is(err, errGuestSilent) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, canceled(context.Cause(ctx))
		}
		return nil, fault.Wrap(err, fault.Unavailable, "files_unavailable", "the sandbox does not answer about its files")
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxComplaint))
	return nil, fault.Wrap(errors.Join(fmt.Errorf("guest answered %d: %.200q", res.StatusCode, b.mask.Record().Bytes(text)), err), fault.Unsupported, "files_unavailable",
		"the sandbox's guest does not list files; it is of an earlier version")
}
