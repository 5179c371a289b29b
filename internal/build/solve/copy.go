package solve

import (
	"archive/tar"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/copyfiles"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
)

// copyInstruction is the common part of COPY and ADD.
type copyInstruction struct {
	command      instructions.Command
	files        instructions.SourcesAndDest
	from         string
	chown, chmod string
	link         bool
	options      copyfiles.Options
	remote       []*remoteSource
}

// copy runs COPY.
func (g *stage) copy(ctx context.Context, c *instructions.CopyCommand, title string) error {
	return g.copyFiles(ctx, title, copyInstruction{
		command: c, files: c.SourcesAndDest, from: c.From, chown: c.Chown, chmod: c.Chmod, link: c.Link,
		options: copyfiles.Options{Exclude: c.ExcludePatterns, Parents: c.Parents},
	})
}

// copyFiles copies files into a new layer, or takes the layer from the cache.
func (g *stage) copyFiles(ctx context.Context, title string, c copyInstruction) error {
	if n := len(c.files.SourcePaths) + len(c.files.SourceContents) + len(c.remote); n > 1 && !strings.HasSuffix(g.absolute(c.files.DestPath), "/") {
		return dockerfile.Refused(c.command, "with more than one source, the destination is a directory and ends in /")
	}
	selection := &copyfiles.Selection{}
	content, err := g.selectionKey(ctx, c, selection)
	if err != nil {
		return err
	}
	key := stepcache.Key("copy", content, g.absolute(c.files.DestPath), c.chown, c.chmod, strconv.FormatBool(c.link), fmt.Sprint(c.options))
	return g.cached(ctx, title, key, func(_ int, w *layertar.Writer) error {
		if len(selection.Items) == 0 {
			if _, err := g.selectFiles(ctx, c, selection); err != nil {
				return err
			}
		}
		d, err := g.destination(ctx, c)
		if err != nil {
			return err
		}
		return selection.Write(w, d)
	})
}

// selectionKey returns an identifier of the files of an instruction. Files of another stage are
// identified by that stage's layers, and remote files by a checksum in the instruction, so that a
// build whose steps are all cached unpacks and fetches nothing.
func (g *stage) selectionKey(ctx context.Context, c copyInstruction, into *copyfiles.Selection) (string, error) {
	if key, pinned := remoteKey(c.remote); pinned && len(c.remote) > 0 && len(c.files.SourcePaths)+len(c.files.SourceContents) == 0 {
		return key, nil
	}
	if c.from == "" {
		return g.selectFiles(ctx, c, into)
	}
	from, err := g.s.source(ctx, g.plan.Index, c.from)
	if err != nil {
		return "", err
	}
	return stepcache.Key(append([]string{"from", from.chain()}, c.files.SourcePaths...)...), nil
}

// selectFiles selects the files of an instruction, and returns their digest.
func (g *stage) selectFiles(ctx context.Context, c copyInstruction, into *copyfiles.Selection) (string, error) {
	src := copyfiles.Source{Root: g.s.context, What: "the build context"}
	if c.from != "" {
		from, err := g.s.source(ctx, g.plan.Index, c.from)
		if err != nil {
			return "", err
		}
		tree, err := from.files(ctx)
		if err != nil {
			return "", err
		}
		root, err := tree.Open()
		if err != nil {
			return "", err
		}
		// The source is read until the layer is complete.
		context.AfterFunc(ctx, func() { root.Close() })
		src = copyfiles.Source{Root: root, Owner: tree.Owner, Resolve: tree.Resolve, Skip: tree.Made, What: c.from}
	}
	if len(c.files.SourcePaths) > 0 {
		if err := into.Select(ctx, src, c.files.SourcePaths, c.options); err != nil {
			return "", err
		}
	}
	for _, r := range c.remote {
		if err := r.selectInto(ctx, g, into, c.options); err != nil {
			return "", err
		}
	}
	for _, f := range c.files.SourceContents {
		into.Inline(f.Path, []byte(f.Data))
	}
	return into.Digest()
}

// absolute returns a path of an instruction, resolved against the working directory.
func (g *stage) absolute(name string) string {
	out := path.Join("/", name)
	if !path.IsAbs(name) {
		out = path.Join("/", g.image.Config.WorkingDir, name)
	}
	if out != "/" && (strings.HasSuffix(name, "/") || name == "." || strings.HasSuffix(name, "/.")) || out == "/" && name != "" {
		return strings.TrimSuffix(out, "/") + "/"
	}
	return out
}

// destination returns the destination of an instruction in the stage.
func (g *stage) destination(ctx context.Context, c copyInstruction) (copyfiles.Destination, error) {
	d := copyfiles.Destination{Path: g.absolute(c.files.DestPath)}
	var err error
	if c.chmod != "" {
		if d.Mode, err = copyfiles.ParseMode(c.chmod); err != nil {
			return d, err
		}
	}
	if c.link && !strings.ContainsFunc(c.chown, isLetter) {
		d.Owned = c.chown != ""
		d.UID, d.GID, err = g.owner(nil, c.chown)
		return d, err
	}
	tree, err := g.files(ctx)
	if err != nil {
		return d, err
	}
	if c.chown != "" {
		d.Owned = true
		if d.UID, d.GID, err = g.owner(tree, c.chown); err != nil {
			return d, dockerfile.Refused(c.command, "--chown: %s", fault.PublicText(err))
		}
	}
	if c.link {
		return d, nil
	}
	root, err := tree.Open()
	if err != nil {
		return d, err
	}
	context.AfterFunc(ctx, func() { root.Close() })
	d.Over = func(name string) (string, fs.FileInfo, error) {
		at, err := tree.Resolve(name)
		if err != nil {
			return "", nil, err
		}
		if tree.Made(at) {
			return at, nil, fs.ErrNotExist
		}
		if at == "" {
			info, err := root.Lstat(".")
			return "", info, err
		}
		info, err := root.Lstat(at)
		return at, info, err
	}
	return d, nil
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' }

// maxAccounts bounds the size of an image's user database, in bytes.
const maxAccounts = 4 << 20

// owner returns the user and group ID of USER[:GROUP]. Names are looked up in the image's own
// files.
func (g *stage) owner(tree *stagetree.Tree, text string) (uid, gid int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	user, group, grouped := strings.Cut(text, ":")
	uid, primary, err := account(tree, "etc/passwd", user)
	if err != nil {
		return 0, 0, err
	}
	gid = uid
	if primary >= 0 {
		gid = primary
	}
	if grouped {
		gid, _, err = account(tree, "etc/group", group)
	}
	return uid, gid, err
}

// account returns an ID and, for a user in the file, the primary group.
func account(tree *stagetree.Tree, file, name string) (id, group int, err error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, -1, nil
	}
	var data []byte
	if tree != nil {
		if data, err = tree.ReadFile(file, maxAccounts); err != nil {
			return 0, 0, fault.Newf(fault.Invalid, "build_account_unknown", "the image has no /%s to look up %.100q in", file, name)
		}
	}
	for l := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(l), ":")
		if len(f) < 3 || f[0] != name {
			continue
		}
		id, err := strconv.Atoi(f[2])
		if err != nil {
			break
		}
		group = -1
		if len(f) > 3 {
			if n, err := strconv.Atoi(f[3]); err == nil {
				group = n
			}
		}
		return id, group, nil
	}
	return 0, 0, fault.Newf(fault.Invalid, "build_account_unknown", "the image has no account or group %.100q", name)
}

// workdir creates the working directory of later instructions.
func (g *stage) workdir(ctx context.Context, c *instructions.WorkdirCommand, title string) error {
	dir := path.Clean(strings.TrimSuffix(g.absolute(c.Path), "/") + "/")
	user := g.image.Config.User
	g.image.Config.WorkingDir = dir
	return g.cached(ctx, title, stepcache.Key("workdir", dir, user), func(_ int, w *layertar.Writer) error {
		d, err := g.destination(ctx, copyInstruction{command: c, files: instructions.SourcesAndDest{DestPath: dir}, chown: user})
		if err != nil {
			return err
		}
		at, info, err := d.Over(strings.TrimPrefix(dir, "/"))
		if err == nil {
			if !info.IsDir() {
				return dockerfile.Refused(c, "%s is a file of the image", dir)
			}
			return nil
		}
		made := ""
		for part := range strings.SplitSeq(at, "/") {
			made = path.Join(made, part)
			if _, _, err := d.Over(made); err == nil {
				continue
			}
			if err := w.Add(tar.Header{Typeflag: tar.TypeDir, Name: made + "/", Mode: 0o755, Uid: d.UID, Gid: d.GID, ModTime: time.Unix(0, 0)}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}
