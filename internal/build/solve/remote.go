package solve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/copyfiles"
	"github.com/crannog/crannog/internal/build/remote"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/image/layer"
)

// remoteSource is a source of ADD that is not in the build context.
type remoteSource struct {
	remote.Source
	checksum string
	keepGit  bool
	name     string // of the file at a URL
	unpack   bool
	root     *os.Root // the fetched files; nil until fetch
}

// remoteSources separates the sources of an ADD into files of the context and others.
func remoteSources(c *instructions.AddCommand) (local []string, others []*remoteSource, err error) {
	for _, word := range c.SourcePaths {
		if !remote.Is(word) {
			local = append(local, word)
			continue
		}
		r := &remoteSource{checksum: c.Checksum, keepGit: c.KeepGitDir != nil && *c.KeepGitDir, unpack: c.Unpack != nil && *c.Unpack}
		if r.Source, err = remote.Parse(word); err != nil {
			return nil, nil, err
		}
		if !r.Git {
			if r.name, err = r.Name(c.DestPath); err != nil {
				return nil, nil, err
			}
		}
		others = append(others, r)
	}
	return local, others, nil
}

// remoteKey returns an identifier of remote sources whose content is known before they are fetched,
// and false if it is not known.
func remoteKey(list []*remoteSource) (string, bool) {
	parts := []string{"remote"}
	for _, r := range list {
		pin := r.Pin(r.checksum)
		if pin == "" {
			return "", false
		}
		parts = append(parts, r.String(), pin, r.name, fmt.Sprint(r.keepGit, r.unpack))
	}
	return stepcache.Key(parts...), true
}

// selectInto adds the files of the source to a selection. It fetches them first if necessary.
func (r *remoteSource) selectInto(ctx context.Context, g *stage, into *copyfiles.Selection, o copyfiles.Options) error {
	if r.root == nil {
		if err := g.fetch(ctx, r); err != nil {
			return err
		}
	}
	src := copyfiles.Source{Root: r.root, What: r.String(), Packed: !r.unpack}
	if r.Git {
		return into.Select(ctx, src, []string{path.Join("/", remote.TreeDir, r.Dir)}, o)
	}
	// The name from the URL must not be read as a pattern.
	return into.SelectFile(src, remote.FileName, r.name)
}

// fetch fetches a source in a sandbox of its own, under the policy of the build: a server or a
// repository that attacks the program that reads it meets no process of the host.
func (g *stage) fetch(ctx context.Context, r *remoteSource) error {
	step, end := g.s.begin("[" + g.name + "] fetch " + r.String())
	err := g.fetchFiles(ctx, r, step)
	if err != nil {
		end(Failed, fault.PublicText(err))
		return err
	}
	end(Done, "")
	return nil
}

// fetchFiles runs the command that fetches a source, and opens the files.
func (g *stage) fetchFiles(ctx context.Context, r *remoteSource, step int) (err error) {
	dir, err := os.MkdirTemp(g.s.Work, "fetch-")
	if err != nil {
		return err
	}
	changes, err := os.OpenFile(filepath.Join(dir, "changes.tar"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changes.Close(), os.Remove(changes.Name())) }()
	last := &lastLine{next: stepOutput{g.s, step}}
	command := Command{Args: r.Command(r.checksum, r.keepGit), HostPrograms: r.Git, Dir: "/", User: "root", Output: last, Changes: changes}
	if !r.Git {
		tree, err := stagetree.New(filepath.Join(dir, "root"), g.s.Limits)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tree.Remove()) }()
		if _, _, err := tree.Prepare(remote.Dir, nil); err != nil {
			return err
		}
		command.Tree = tree.Dir
	}
	code, err := g.s.Runner.Run(ctx, command)
	if err != nil {
		return err
	}
	if code != 0 {
		return fault.Newf(fault.Invalid, "build_fetch_failed", "%s: %s cannot be fetched: %.300s", g.location, r.String(), last.String()).
			WithHint("--allow HOST permits a host; crannog blocked lists what the policy has denied")
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		return err
	}
	list, err := stagetree.ReadChanges(changes)
	if err != nil {
		return fmt.Errorf("read the fetched files: %w", err)
	}
	if err := list.Below(strings.TrimPrefix(remote.Dir, "/")).ApplyTo(ctx, files, layer.Limits{Entries: remote.MaxFiles, Bytes: remote.MaxBytes}); err != nil {
		return err
	}
	root, err := os.OpenRoot(files)
	if err != nil {
		return err
	}
	err = r.verify(root)
	if err == nil {
		err = g.reportFetched(r, root)
	}
	if err != nil {
		return errors.Join(err, root.Close())
	}
	context.AfterFunc(ctx, func() { root.Close() })
	r.root = root
	return nil
}

// maxCommit is more than the length of a commit's name.
const maxCommit = 128

// verify compares the fetched files with the checksum of the instruction.
func (r *remoteSource) verify(root *os.Root) error {
	name := remote.FileName
	if r.Git {
		name = remote.CommitFile
	}
	info, err := root.Lstat(name)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "build_fetch_failed", "the sandbox that fetched "+r.String()+" has left no files")
	}
	if !info.Mode().IsRegular() {
		return fault.Newf(fault.Invalid, "build_fetch_failed", "%s is not a file", r.String())
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !r.Git {
		if r.checksum == "" {
			return nil
		}
		return r.Verify(r.checksum, f)
	}
	commit, err := io.ReadAll(io.LimitReader(f, maxCommit))
	if err != nil {
		return err
	}
	want := r.checksum
	if pin := r.Pin(want); pin != "" && want == "" {
		want = pin
	}
	return r.VerifyCommit(want, string(commit))
}

// lastLine passes output on and keeps its last line, which names the reason of a failure.
type lastLine struct {
	next io.Writer
	line []byte
}

// maxLastLine bounds the kept part of a line, in bytes.
const maxLastLine = 1024

// Write implements io.Writer.
func (l *lastLine) Write(p []byte) (int, error) {
	l.line = append(l.line, p...)
	if trimmed := bytes.TrimRight(l.line, "\n"); bytes.Contains(trimmed, []byte("\n")) {
		l.line = l.line[bytes.LastIndexByte(trimmed, '\n')+1:]
	}
	l.line = l.line[max(len(l.line)-maxLastLine, 0):]
	return l.next.Write(p)
}

// String returns the line without characters that control a terminal.
func (l *lastLine) String() string {
	return text.Strict(string(bytes.TrimSpace(l.line)), maxLastLine)
}
