package changes

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/filetree/gitrepo/gitfile"
	"github.com/crannog/crannog/internal/filetree/gitrepo/objects"
	"github.com/crannog/crannog/internal/sandbox"
)

// scratch creates a private directory for files of a sandbox that are only inspected. If the
// process is killed, a later start removes the directory.
func (o *comparison) scratch() (*os.Root, func() error, error) {
	store := o.service.retained
	if store == nil {
		return nil, nil, fault.New(fault.Unsupported, "changes_unavailable", "this server does not retain changes")
	}
	draft, err := store.Begin(o.record.ID)
	if err != nil {
		return nil, nil, err
	}
	return draft.Files, draft.Abort, nil
}

// Limits of the data that is fetched for inspection. References beyond them are not exported.
const (
	maxInspected        = 1 << 30
	maxInspectedCommits = 200_000
	maxRefFile          = 16 << 20
	maxKnownNames       = 100_000
)

// gitInspection inspects the changes of a sandbox in git repositories. An exported reference
// includes its commits, and checking out or merging a commit that lacks a hidden file would remove
// that file.
type gitInspection struct {
	o       *comparison
	before  *os.Root // the directory at the start of the sandbox
	match   policy.Matcher
	hidden  func(inside string) string
	deny    bool
	guards  bool // the policy hides or protects something
	set     *changeset.Set
	byPath  map[string]int
	files   *os.Root          // changes whose content was fetched
	fetched map[string]string // file names of the fetched content
	repos   map[string]*inspectedRepository
}

// inspectedRepository is a repository whose changes are inspected.
type inspectedRepository struct {
	reader    *objects.Reader
	history   *objects.History // the commits, and which of them existed before
	known     []string         // IDs of the commits that existed before
	inspected map[*objects.Commit]gitVerdict
	err       error
	undo      []func() error
}

// inspectGit flags the references whose commits change files that the policy hides or protects. It
// rewrites indexes for the host: without the marks of the guest, and with the host's entries for
// hidden files.
func (o *comparison) inspectGit(ctx context.Context, set *changeset.Set) (err error) {
	files := o.policy.Files()
	j := &gitInspection{
		o: o, match: files.Matcher(), set: set, before: cmp.Or(o.base.Content, o.base.Outside), byPath: map[string]int{}, repos: map[string]*inspectedRepository{},
		deny: len(files.Deny) > 0, hidden: sandbox.HiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent)),
	}
	if j.before == nil {
		return nil // the directory was empty at the start
	}
	j.guards = j.deny || len(files.Protect)+len(files.ReadOnly) > 0
	for i, c := range set.Changes {
		j.byPath[c.Path] = i
	}
	var refs, indexes []int
	for i, c := range set.Changes {
		if c.New == nil || c.New.Type != changeset.Regular || c.Refused() {
			continue
		}
		switch dir, rest := j.repositoryOf(c.Path); {
		case dir == "":
		case rest == "index":
			indexes = append(indexes, i)
		case j.guards:
			refs = append(refs, i)
		}
	}
	if len(refs)+len(indexes) == 0 {
		return nil
	}
	if err := j.inspect(ctx, refs, indexes); err != nil {
		return err
	}
	set.Digest = changeset.Digest(set.Changes)
	return nil
}

func (j *gitInspection) inspect(ctx context.Context, refs, indexes []int) (err error) {
	root, drop, err := j.o.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	defer func() {
		for _, r := range j.repos {
			for _, undo := range slices.Backward(r.undo) {
				err = errors.Join(err, undo())
			}
		}
	}()
	j.files = root
	list, withinLimits := j.filesToFetch(refs, indexes)
	if j.fetched, err = changeset.Fetch(ctx, j.o.source, j.o.dir, list, root, changeset.Bounds{}); err != nil {
		return err
	}
	for _, i := range refs {
		c := &j.set.Changes[i]
		if !withinLimits {
			j.flagUnchecked(c)
			continue
		}
		j.flagReference(c)
	}
	contents, same := map[string][]byte{}, map[string]bool{}
	for _, i := range indexes {
		c := &j.set.Changes[i]
		text, equal := j.exportedIndex(c)
		switch {
		case equal:
			same[c.Path] = true
		case text != nil:
			e := *c.New
			e.Size, e.Sum = int64(len(text)), sumOf(text)
			c.New = &e
			contents[c.Path] = text
		}
	}
	j.checkPacked(same)
	if len(contents) > 0 {
		j.o.source = changeset.Replace(j.o.source, j.o.dir, contents)
	}
	return nil
}

// filesToFetch returns the changes whose content has to be inspected: references, indexes, and, if
// there are references, objects. It reports whether they are within the limits.
func (j *gitInspection) filesToFetch(refs, indexes []int) (list []changeset.Change, withinLimits bool) {
	for _, i := range slices.Concat(refs, indexes) {
		list = append(list, j.set.Changes[i])
	}
	var bytes int64
	var found []changeset.Change
	for _, c := range j.set.Changes {
		if len(refs) == 0 || c.New == nil || c.New.Type != changeset.Regular || !objectFile(c.Path) {
			continue
		}
		bytes += c.New.Size
		found = append(found, c)
	}
	if withinLimits = bytes <= maxInspected && len(found) <= maxInspectedCommits; withinLimits {
		list = append(list, found...)
	}
	slices.SortFunc(list, func(a, b changeset.Change) int { return strings.Compare(a.Path, b.Path) })
	return list, withinLimits
}

// objectFile reports whether a path may be an object of a repository.
func objectFile(name string) bool {
	return strings.Contains("/"+name, "/objects/")
}

// repositoryOf returns the repository to which an index or a reference belongs, or "", and its path
// there.
func (j *gitInspection) repositoryOf(name string) (dir, rest string) {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch part {
		case "refs", "reftable":
			if last {
				continue
			}
		case "index", "HEAD", "packed-refs":
			if !last {
				continue
			}
		default:
			continue
		}
		if at := path.Join(parts[:i]...); j.isRepository(at) {
			return cmp.Or(at, "."), strings.Join(parts[i:], "/")
		}
	}
	return "", ""
}

// isRepository reports whether git recognises a directory as a repository, or as the private part
// of a linked work tree.
func (j *gitInspection) isRepository(dir string) bool {
	if path.Base(dir) == ".git" || path.Base(path.Dir(dir)) == "worktrees" && j.isRepository(path.Dir(path.Dir(dir))) {
		return true
	}
	_, hasObjects := j.byPath[path.Join(dir, "objects")]
	if !hasObjects {
		info, err := j.before.Stat(path.Join(cmp.Or(dir, "."), "objects"))
		hasObjects = err == nil && info.IsDir()
	}
	if !hasObjects {
		return false
	}
	_, hasHead := j.byPath[path.Join(dir, "HEAD")]
	if !hasHead {
		_, err := j.before.Lstat(path.Join(cmp.Or(dir, "."), "HEAD"))
		hasHead = err == nil
	}
	return hasHead
}

// workTree returns the work tree of a repository, as a path inside. A different core.worktree is
// ignored: patterns that begin with ** match in any case.
func workTree(dir string) string {
	dir = gitfile.Common(dir)
	if path.Base(dir) == ".git" {
		dir = path.Dir(dir)
	}
	return path.Join(sandbox.WorkspaceDir, dir)
}

func (j *gitInspection) isHidden(inside string) bool {
	return j.match.Denied(inside) || j.hidden(inside) != ""
}

// flagUnchecked flags a git reference whose content cannot be determined. The policy either denies
// it or requires approval.
func (j *gitInspection) flagUnchecked(c *changeset.Change) {
	if j.deny {
		c.Flags = append(c.Flags, changeset.GitUnchecked)
		return
	}
	j.flagProtected(c, "")
}

func (j *gitInspection) flagProtected(c *changeset.Change, name string) {
	if c.Because = name; !c.Has(changeset.Protected) {
		c.Flags = append(c.Flags, changeset.Protected)
	}
}

// text returns the fetched content of a file.
func (j *gitInspection) text(c *changeset.Change, limit int64) ([]byte, bool) {
	name, ok := j.fetched[c.Path]
	if !ok {
		return nil, false
	}
	text, err := gitfile.Read(j.files, name, limit)
	return text, err == nil
}
