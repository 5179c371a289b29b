package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/fault"
)

// resolveFeatures finds the features of the configuration. Their descriptions are needed before the
// image is built, because they may ask for something that is not supported.
func (s *devSession) resolveFeatures(ctx context.Context) error {
	before := len(s.plan.Notes)
	err := s.plan.ResolveFeatures(ctx, devcontainer.Options{Dir: s.dir, LookUp: s.lookUp}, s.findFeature)
	if err != nil {
		return fail("use the features of "+s.plan.File, err)
	}
	s.showNotes(before)
	return nil
}

// writeLock resolves the features and writes their digests into the lock file. It starts nothing.
func (s *devSession) writeLock(ctx context.Context, command []string) error {
	if len(command) > 0 || s.flags.ssh {
		return usagef("--lock starts nothing, so it takes no command and not --ssh")
	}
	return s.withInterrupt(ctx, func(ctx context.Context, c *connection) error {
		s.conn = c
		if err := s.resolveFeatures(ctx); err != nil {
			return err
		}
		name, err := s.plan.WriteLock(s.dir)
		if err != nil {
			return fail("write the lock file", err)
		}
		if s.json {
			return s.object(map[string]string{"file": name})
		}
		fmt.Fprintln(s.Stdout, inert(name))
		return nil
	})
}

// showNotes prints the notes of the plan from an index on.
func (s *devSession) showNotes(from int) {
	for _, note := range s.plan.Notes[from:] {
		s.note("%s", inert(note))
	}
}

// addMetadata adds what the label of the image to start from asks for.
func (s *devSession) addMetadata(image string, img api.Image) error {
	if s.flags.noMetadata || img.Config == nil || img.Config.Labels[devcontainer.MetadataLabel] == "" {
		return nil
	}
	before := len(s.plan.Notes)
	o := devcontainer.Options{Dir: s.dir, LookUp: s.lookUp}
	if err := s.plan.AddMetadata(o, image, img.Config.Labels[devcontainer.MetadataLabel]); err != nil {
		return fail("use the image "+inert(image), err)
	}
	s.showNotes(before)
	return nil
}

// findFeature pulls a feature, unless it is on this machine. The server pulls it, so that the rules
// for registries apply.
func (s *devSession) findFeature(ctx context.Context, ref string) (found devcontainer.Artifact, err error) {
	f := imageFlags{image: ref}
	if (s.flags.rebuild || s.flags.lock) && !strings.Contains(ref, "@") {
		f.pull = pullAlways
	}
	img, err := imageVerbs{s.app}.fetchImage(ctx, s.conn, &f, "")
	if err != nil {
		return found, err
	}
	if img.Feature == "" {
		return found, fault.Newf(fault.Invalid, devcontainer.CodeInvalid, "%s is an image with programs, and not a feature", ref)
	}
	return devcontainer.Artifact{Digest: img.Digest, Description: []byte(img.Feature)}, nil
}

// ownImage adds what the image asks for to the plan, builds the configuration's own image, if it
// needs one, and returns the name of the image to start from.
func (s *devSession) ownImage(ctx context.Context, image string) (string, error) {
	img, err := s.conn.InspectImage(ctx, image)
	if errors.Is(err, crannog.ErrNotFound) && len(s.plan.Installs) == 0 {
		if !s.flags.noMetadata {
			s.note("the label %s of %s is not read, because the image is in the store of an engine", devcontainer.MetadataLabel, inert(image))
		}
		return image, nil
	}
	if err != nil {
		return "", fail("find the image for the features", err).hint("features are installed in images of crannog's own store: crannog image pull " + inert(image))
	}
	if err := s.addMetadata(image, img); err != nil {
		return "", err
	}
	if !s.plan.HasOwnImage(userOf(img)) {
		return image, nil
	}
	text, err := s.plan.ImageFile(image, userOf(img))
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "crannog-features-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for i, f := range s.plan.Installs {
		if f.Local == "" {
			continue
		}
		if err := copyFeature(filepath.Join(dir, devcontainer.LocalName(i)), f.Local); err != nil {
			return "", fail("copy the feature "+inert(f.Reference), err)
		}
	}
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	build := &buildFlags{file: file, tag: s.imageName() + "-container", noCache: s.flags.rebuild, accessFlags: s.flags.create.accessFlags}
	build.level = ""
	return build.tag, s.build(ctx, build, dir)
}

// copyFeature copies the files of a feature of the workspace. Links are copied as links, so that
// none shows other files of this machine to the build.
func copyFeature(to, from string) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	return os.CopyFS(to, root.FS())
}

func userOf(img api.Image) string {
	if img.Config == nil {
		return ""
	}
	return img.Config.User
}
