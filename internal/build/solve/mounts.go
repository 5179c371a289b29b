package solve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/build/copyfiles"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
)

// shownFile is a file or directory that is mounted for a command. Changes to it are never part of a
// layer.
type shownFile struct {
	source, target string
	directory      bool
	// keep stores the command's changes, or is nil.
	keep func(ctx context.Context, c *stagetree.Changes) error
}

// mounts are the mounts of one RUN.
type mounts struct {
	g    *stage
	list []*instructions.Mount
	key  string // part of the step's cache key
}

// mounts checks the mounts of a RUN and resolves their targets.
func (g *stage) mounts(ctx context.Context, c *instructions.RunCommand) (mounts, error) {
	m := mounts{g: g, list: instructions.GetMounts(c)}
	parts := []string{}
	for _, one := range m.list {
		part := fmt.Sprint(one.Type, one.From, one.Source, one.Target, one.ReadOnly, one.CacheID, one.Required)
		switch one.Type {
		case instructions.MountTypeBind:
			content, err := m.content(ctx, one)
			if err != nil {
				return m, err
			}
			part += content
		case instructions.MountTypeCache:
			if one.From != "" {
				return m, dockerfile.Refused(c, "--mount=type=cache,from=%s: a cache always starts empty here", one.From)
			}
		case instructions.MountTypeSecret, instructions.MountTypeTmpfs:
		case instructions.MountTypeSSH:
			return m, dockerfile.Refused(c, "--mount=type=ssh is not supported; pass a key as a secret")
		default:
			return m, dockerfile.Refused(c, "--mount=type=%s is not supported", one.Type)
		}
		if one.Target != "" {
			one.Target = strings.TrimSuffix(g.absolute(one.Target), "/")
			if one.Target == "" {
				return m, dockerfile.Refused(c, "a mount at / is not possible")
			}
		}
		parts = append(parts, part)
	}
	m.key = stepcache.Key(parts...)
	return m, nil
}

// content returns a key for the content of a bind mount.
func (m mounts) content(ctx context.Context, one *instructions.Mount) (string, error) {
	c := copyInstruction{files: instructions.SourcesAndDest{SourcePaths: []string{"/" + one.Source}}, from: one.From}
	return m.g.selectionKey(ctx, c, &copyfiles.Selection{})
}

// show prepares the mounts for the command. dir is the step's own directory.
func (m mounts) show(ctx context.Context, dir string, env map[string]string) (list []shownFile, release func(), err error) {
	var locks []*os.File
	release = func() {
		for _, f := range locks {
			f.Close()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	for i, one := range m.list {
		place := filepath.Join(dir, strconv.Itoa(i))
		s := shownFile{source: place, target: one.Target, directory: true}
		switch one.Type { //nolint:exhaustive // the plan refuses the others
		case instructions.MountTypeTmpfs:
			err = makeDir(place, 0o1777)
		case instructions.MountTypeBind:
			s, err = m.bind(ctx, one)
		case instructions.MountTypeSecret:
			var shown bool
			if s, shown, err = m.secret(one, place, env); err == nil && !shown {
				continue
			}
		case instructions.MountTypeCache:
			var lock *os.File
			if s, lock, err = m.cache(ctx, one); lock != nil {
				locks = append(locks, lock)
			}
		}
		if err != nil {
			return nil, release, err
		}
		list = append(list, s)
	}
	return list, release, nil
}

// makeDir creates a directory with exactly this mode, regardless of the umask.
func makeDir(name string, mode uint32) error {
	return errors.Join(os.Mkdir(name, 0o700), unix.Chmod(name, mode))
}

// bind returns the file or directory of a bind mount.
func (m mounts) bind(ctx context.Context, one *instructions.Mount) (shownFile, error) {
	s := shownFile{target: one.Target}
	contextDir, name := m.g.s.Context, strings.TrimPrefix(path.Clean("/"+one.Source), "/")
	tree := &stagetree.Tree{Dir: contextDir}
	if one.From != "" {
		from, err := m.g.s.source(ctx, m.g.plan.Index, one.From)
		if err != nil {
			return s, err
		}
		if tree, err = from.files(ctx); err != nil {
			return s, err
		}
	}
	// A link leads where it would in the sandbox, so that it cannot expose a file of the host.
	at, err := tree.Resolve(name)
	if err != nil {
		return s, err
	}
	s.source = filepath.Join(tree.Dir, at)
	info, err := os.Lstat(s.source)
	if err != nil {
		return s, fault.Wrap(err, fault.NotFound, copyfiles.CodeMissing, fmt.Sprintf("the source %.200q of a mount does not exist", one.Source))
	}
	s.directory = info.IsDir()
	if !s.directory && !info.Mode().IsRegular() {
		return s, fault.Newf(fault.Invalid, "build_file_refused", "the source %.200q of a mount is not a file or directory", one.Source)
	}
	return s, nil
}

// secret shows a secret as a file, or passes it as a variable. shown is false if no file is shown.
func (m mounts) secret(one *instructions.Mount, place string, env map[string]string) (s shownFile, shown bool, err error) {
	id := one.CacheID
	if id == "" {
		id = path.Base(one.Target)
	}
	value, ok := m.g.s.o.Secrets[id]
	if !ok {
		if one.Required {
			return s, false, fault.Newf(fault.Invalid, "build_secret_missing", "the secret %.100q is required", id).WithHint("--secret id=" + id + ",src=FILE")
		}
		return s, false, nil
	}
	if one.Env != nil {
		name := *one.Env
		if name == "" {
			name = id
		}
		env[name] = string(value)
		if one.Target == "" {
			return s, false, nil
		}
	}
	s = shownFile{source: place, target: one.Target}
	if s.target == "" {
		s.target = "/run/secrets/" + id
	}
	mode, uid, gid := uint32(0o400), 0, 0
	if one.Mode != nil {
		mode = uint32(*one.Mode & 0o777) //nolint:gosec // nine bits
	}
	if one.UID != nil {
		uid = int(*one.UID) //nolint:gosec // the parser bounds it
	}
	if one.GID != nil {
		gid = int(*one.GID) //nolint:gosec // the parser bounds it
	}
	if err := os.WriteFile(place, value, 0o600); err != nil {
		return s, false, err
	}
	if os.Geteuid() == 0 {
		err = os.Lchown(place, uid, gid)
	}
	return s, true, errors.Join(err, unix.Chmod(place, mode))
}

// cache returns a directory that persists between builds. Only one command at a time uses it.
func (m mounts) cache(ctx context.Context, one *instructions.Mount) (shownFile, *os.File, error) {
	id := one.CacheID
	if id == "" {
		id = one.Target
	}
	home := filepath.Join(m.g.s.Mounts, stepcache.Key("mount", m.g.s.o.Owner, id))
	data := filepath.Join(home, "data")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return shownFile{}, nil, err
	}
	lock, err := lockFile(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return shownFile{}, nil, err
	}
	if _, err := os.Lstat(data); errors.Is(err, os.ErrNotExist) {
		mode := uint32(0o755)
		if one.Mode != nil {
			mode = uint32(*one.Mode & 0o1777) //nolint:gosec // ten bits
		}
		err := makeDir(data, mode)
		if err == nil && os.Geteuid() == 0 && one.UID != nil {
			gid := *one.UID
			if one.GID != nil {
				gid = *one.GID
			}
			err = os.Lchown(data, int(*one.UID), int(gid)) //nolint:gosec // the parser bounds them
		}
		if err != nil {
			return shownFile{}, lock, err
		}
	}
	limits := m.g.s.Limits
	keep := func(ctx context.Context, c *stagetree.Changes) error { return c.ApplyTo(ctx, data, limits) }
	if one.ReadOnly {
		keep = nil
	}
	return shownFile{source: data, target: one.Target, directory: true, keep: keep}, lock, nil
}

// lockRetry is the delay between attempts to take a lock that another process holds.
const lockRetry = 100 * time.Millisecond

// lockFile opens a file and locks it. It waits until ctx ends.
func lockFile(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-retry.C:
		}
	}
}
