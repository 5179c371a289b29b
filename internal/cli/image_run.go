package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// imageFlags are the flags about the image from which a sandbox starts.
type imageFlags struct {
	image      string
	pull       string
	entrypoint string
	// bare runs the command without the image's entrypoint.
	bare bool
}

// Values of --pull.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// check refuses flags that have no meaning without an image.
func (f *imageFlags) check() error {
	switch {
	case !slices.Contains([]string{"", pullMissing, pullAlways, pullNever}, f.pull):
		return usagef("--pull: %q is not missing, always or never", f.pull)
	case f.image == "" && f.pull != "":
		return usagef("--pull needs --image")
	case f.image == "" && f.entrypoint != "":
		return usagef("--entrypoint needs --image")
	}
	return nil
}

// fetchImage makes sure that the server or the engine has the image, and describes it.
func (a imageVerbs) fetchImage(ctx context.Context, c *connection, f *imageFlags, engine string) (api.Image, error) {
	if f.pull != pullAlways {
		img, err := c.InspectImageOn(ctx, f.image, first(engine, a.config.Engines.Default))
		if err == nil || f.pull == pullNever || !missingImage(err) {
			if err != nil {
				err = fail("find the image "+inert(f.image), err)
			}
			return img, err
		}
	}
	if _, err := a.pullImage(ctx, c, api.PullImage{Image: f.image}); err != nil {
		return api.Image{}, err
	}
	img, err := c.InspectImage(ctx, f.image)
	if err != nil {
		return img, fail("find the image "+inert(f.image), err)
	}
	return img, nil
}

// imageArgs returns the command to run in an image: its entrypoint with the given arguments, or
// with the image's own.
func imageArgs(f *imageFlags, img api.Image, args []string) ([]string, error) {
	if f.bare {
		return args, nil
	}
	var entry, cmd []string
	if img.Config != nil {
		entry, cmd = img.Config.Entrypoint, img.Config.Cmd
	}
	if f.entrypoint != "" {
		entry, cmd = strings.Fields(f.entrypoint), nil
	}
	if len(args) == 0 {
		args = cmd
	}
	all := slices.Concat(entry, args)
	if len(all) == 0 {
		return nil, usagef("the image has no default command, and none was given").hint("crannog run --image " + inert(f.image) + " -- sh")
	}
	return all, nil
}

// completeImages completes the names of images.
func (a imageVerbs) completeImages(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	a.askServer(cmd.Context(), func(ctx context.Context, c *connection) error {
		images, err := c.Images(ctx)
		for _, img := range images {
			if !slices.Contains(args, img.Name) {
				found = append(found, cobra.CompletionWithDesc(img.Name, shortDigest(img.Digest)))
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// imageLine shows the progress of work on an image on a terminal.
type imageLine struct {
	what string
	line *progressLine

	mu    sync.Mutex
	blobs map[string]api.ImageEvent
}

// imageProgress returns the progress line of an operation on the image or file what.
func (a imageVerbs) imageProgress(what string) *imageLine {
	return &imageLine{what: inert(what), line: a.newProgress(), blobs: map[string]api.ImageEvent{}}
}

// event processes the progress of one blob or stage.
func (l *imageLine) event(e api.ImageEvent) {
	if l.line == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	switch e.Stage {
	case "pull":
		l.blobs[e.Digest] = e
		var done, total int64
		complete := 0
		for _, b := range l.blobs {
			done, total = done+b.Done, total+b.Total
			if b.Done == b.Total {
				complete++
			}
		}
		text = fmt.Sprintf("pulling %s %s %s of %s, %d of %d blobs", l.what, bar(done, total), bytesText(done), bytesText(total), complete, len(l.blobs))
	case "unpack":
		text = fmt.Sprintf("unpacking %s %s", l.what, bar(e.Done, e.Total))
	case "push":
		text = fmt.Sprintf("pushing %s %s %s of %s", l.what, bar(e.Done, e.Total), bytesText(e.Done), bytesText(e.Total))
	}
	l.line.show(text)
}

// bar draws a progress bar.
func bar(done, total int64) string {
	const width = 20
	full := 0
	if total > 0 {
		full = int(min(done*width/total, width))
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}

func (l *imageLine) end() {
	if l.line != nil {
		l.line.end()
	}
}

// startOption returns the option for the sandbox's starting point.
func (a imageVerbs) startOption(ctx context.Context, b *sandboxFlags, c *connection) (crannog.CreateOption, error) {
	if b.image != "" {
		if _, err := a.fetchImage(ctx, c, &b.imageFlags, b.engine); err != nil {
			return nil, err
		}
		return crannog.Image(b.image), nil
	}
	template, err := runVerbs(a).startOf(ctx, b, c)
	return crannog.Template(template), err
}
