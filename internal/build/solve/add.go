package solve

import (
	"context"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/copyfiles"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/build/stepcache"
	"github.com/crannog/crannog/internal/fault"
)

// addFiles implements ADD, which is like COPY, unpacks archives and fetches remote files. An archive
// at a URL is unpacked only with --unpack.
func (g *stage) addFiles(ctx context.Context, c *instructions.AddCommand, title string) error {
	if err := dockerfile.CheckAdd(c); err != nil {
		return err
	}
	all := copyInstruction{command: c, files: c.SourcesAndDest, chown: c.Chown, chmod: c.Chmod, link: c.Link, options: copyfiles.Options{Exclude: c.ExcludePatterns}}
	var err error
	if all.files.SourcePaths, all.remote, err = remoteSources(c); err != nil {
		return dockerfile.Refused(c, "%s", fault.PublicText(err))
	}
	for _, r := range all.remote {
		g.reportPinned(r)
	}
	local := len(all.files.SourcePaths) > 0
	if c.Unpack != nil && !*c.Unpack || c.Unpack == nil && !local {
		return g.copyFiles(ctx, title, all)
	}
	selection := &copyfiles.Selection{}
	content, err := g.selectFiles(ctx, all, selection)
	if err != nil {
		return err
	}
	archives, err := selection.TakeArchives()
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return g.copyFiles(ctx, title, all)
	}
	key := stepcache.Key("add", content, g.absolute(c.DestPath), c.Chown, c.Chmod)
	return g.cached(ctx, title, key, func(_ int, w *layertar.Writer) error {
		all.files.DestPath = strings.TrimSuffix(c.DestPath, "/") + "/"
		d, err := g.destination(ctx, all)
		if err != nil {
			return err
		}
		for _, a := range archives {
			if err := a.Write(w, d); err != nil {
				return err
			}
		}
		if len(selection.Items) == 0 {
			return nil
		}
		return selection.Write(w, d)
	})
}
