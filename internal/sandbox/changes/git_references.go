package changes

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/filetree/gitrepo/gitfile"
	"github.com/crannog/crannog/internal/filetree/gitrepo/index"
	"github.com/crannog/crannog/internal/filetree/gitrepo/objects"
)

// flagReference flags a file of references if the commits of one of them change hidden or protected
// files.
func (j *gitInspection) flagReference(c *changeset.Change) {
	dir, rest := j.repositoryOf(c.Path)
	text, ok := j.text(c, maxRefFile)
	if !ok || strings.HasPrefix(rest, "reftable/") {
		j.flagUnchecked(c)
		return
	}
	r := j.repository(gitfile.Common(dir))
	earlier := j.earlierReferences(c.Path)
	for name, id := range refNames(rest, string(text)) {
		if earlier[name] == id || slices.Contains(r.known, id) {
			continue
		}
		found, err := j.inspectReference(r, dir, id, earlier[name])
		switch {
		case err != nil:
			j.flagUnchecked(c)
		case found.hidden != "":
			c.Flags, c.Because = append(c.Flags, changeset.HiddenChanged), found.hidden
		case found.protected != "":
			j.flagProtected(c, found.protected)
			continue
		default:
			continue
		}
		return
	}
}

// earlierReferences returns the references that a file contained at the start of the sandbox.
func (j *gitInspection) earlierReferences(file string) map[string]string {
	text, err := gitfile.Read(j.before, file, maxRefFile)
	if err != nil {
		return nil
	}
	_, rest := j.repositoryOf(file)
	return refNames(rest, string(text))
}

// refNames reads a file of references.
func refNames(file, text string) map[string]string {
	all := map[string]string{}
	if file != "packed-refs" {
		if id := commitID(text); id != "" {
			all[file] = id
		}
		return all
	}
	for line := range strings.Lines(text) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id = commitID(strings.TrimPrefix(id, "^")); id != "" {
			all[cmp.Or(name, id)] = id
		}
	}
	return all
}

// repository opens the objects of a repository: the earlier ones and those fetched from the
// sandbox.
func (j *gitInspection) repository(dir string) *inspectedRepository {
	if r := j.repos[dir]; r != nil {
		return r
	}
	r := &inspectedRepository{}
	j.repos[dir] = r
	fetched := newFiles{root: j.files, names: map[string]string{}}
	for name, file := range j.fetched {
		if rest, ok := strings.CutPrefix(name, path.Join(dir, "objects")+"/"); ok {
			fetched.names[rest] = file
		}
	}
	sources := []objects.Files{fetched}
	host, undo, err := hostObjects(j.before, path.Join(dir, "objects"))
	r.undo = append(r.undo, undo)
	if r.err = err; err != nil {
		return r
	}
	if r.reader, r.err = objects.NewReader(append(sources, host...)...); r.err != nil {
		return r
	}
	r.undo = append(r.undo, r.reader.Close)
	if r.known, r.err = knownNames(j.before, dir); r.err == nil {
		r.history, r.err = objects.NewHistory(r.reader, r.known)
	}
	return r
}

// newFiles are object files that were fetched from the sandbox.
type newFiles struct {
	root  *os.Root
	names map[string]string
}

// Open implements objects.Files.
func (f newFiles) Open(name string) (*os.File, error) {
	file, ok := f.names[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return f.root.Open(file)
}

// Names implements objects.Files.
func (f newFiles) Names() ([]string, error) {
	var out []string
	for name := range f.names {
		if rest, ok := strings.CutPrefix(name, "pack/"); ok {
			out = append(out, rest)
		}
	}
	return out, nil
}

// exportedIndex returns the index to export. equal reports whether it tracks the same files as the
// host's index, whatever metadata it has about the files inside. A nil index means that the file
// stays unchanged.
func (j *gitInspection) exportedIndex(c *changeset.Change) (text []byte, equal bool) {
	dir, _ := j.repositoryOf(c.Path)
	inside := workTree(dir)
	hidden := func(name string) bool { return j.isHidden(path.Join(inside, name)) }
	data, ok := j.text(c, index.MaxBytes)
	var sandboxIndex, hostIndex *index.Index
	if ok {
		sandboxIndex, _ = index.Parse(data) // malformed data is nil
	}
	if j.o.base.Outside != nil {
		hostIndex, _ = gitfile.ReadIndex(j.o.base.Outside, c.Path)
	}
	switch {
	case sandboxIndex == nil && j.deny && (!ok || hostIndex != nil && hostIndex.Tracks(hidden)):
		c.Flags = append(c.Flags, changeset.GitUnchecked)
		return nil, false
	case sandboxIndex == nil || hostIndex == nil || !sandboxIndex.Fits(hostIndex):
		return nil, false
	}
	restored := sandboxIndex.Restore(hostIndex, hidden)
	if sandboxIndex.Same(hostIndex) {
		return nil, true
	}
	// The next commit on the host would include the staged changes.
	if name := sandboxIndex.Other(hostIndex, func(name string) bool { return j.match.Protected(path.Join(inside, name)) }); name != "" {
		j.flagProtected(c, name)
	}
	if !restored {
		return nil, false
	}
	return sandboxIndex.Bytes(), false
}
