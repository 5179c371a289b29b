package changes

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// maxGitFile limits how much of a git file is read.
const maxGitFile = 4 << 20

// commit returns the commit that was checked out when the sandbox was created. It returns "", which
// makes no claim, if the Git files that name the commit have changed since. It does not describe
// uncommitted changes of that time.
func (o *comparison) commit() string {
	if o.dir != sandbox.WorkspaceDir || o.base.Outside == nil || o.record.Base.Copy != "" {
		return ""
	}
	head, _ := o.readUnchanged(".git/HEAD")
	ref, symbolic := strings.CutPrefix(head, "ref: ")
	if !symbolic {
		return commitID(head)
	}
	if ref = strings.TrimSpace(ref); !strings.HasPrefix(ref, "refs/") || path.Clean(ref) != ref {
		return ""
	}
	text, there := o.readUnchanged(".git/" + ref)
	if there {
		return commitID(text)
	}
	packed, _ := o.readUnchanged(".git/packed-refs")
	for line := range strings.Lines(packed) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return commitID(id)
		}
	}
	return ""
}

// readUnchanged reads a file of the workspace's host directory that is unchanged since the
// sandbox's start. there reports whether the file exists or existed then; if so, no other file may
// be read in its place.
func (o *comparison) readUnchanged(name string) (text string, there bool) {
	var earlier *changeset.Entry
	for i := range o.base.Start {
		if o.base.Start[i].Path == name {
			earlier = &o.base.Start[i]
		}
	}
	// O_NONBLOCK: opening a pipe would otherwise block for ever.
	f, err := o.base.Outside.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", earlier != nil || !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || earlier == nil || !info.Mode().IsRegular() || info.Size() != earlier.Size || !info.ModTime().Equal(earlier.MTime) {
		return "", true
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Ino != earlier.Ino {
		return "", true
	}
	data, err := io.ReadAll(io.LimitReader(f, maxGitFile+1))
	if err != nil || len(data) > maxGitFile { // a truncated name could be another valid one
		return "", true
	}
	return string(data), true
}

// commitID returns the text if it is the ID of a commit, and "" otherwise.
func commitID(text string) string {
	text = strings.TrimSpace(text)
	if len(text) != 40 && len(text) != 64 || strings.Trim(text, "0123456789abcdef") != "" {
		return ""
	}
	return text
}
