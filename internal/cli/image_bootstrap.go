package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/image/debian"
)

// bootstrapFlags are the flags of crannog image bootstrap.
type bootstrapFlags struct {
	tag, suite, mirror, keyring, progress string
	include                               []string
}

// bootstrapFile builds the image from the files that package debian prepares. All files are in one
// layer, because the second stage copies them.
const bootstrapFile = `FROM scratch AS setup
ADD root.tar /
RUN --mount=type=bind,source=debs,target=/debs ["/bin/sh", "/debs/setup.sh"]
FROM scratch
COPY --from=setup / /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["bash"]
`

// fetchTimeout bounds the transfer of one file of the mirror. It only ends one that hangs.
const fetchTimeout = 10 * time.Minute

func (a imageVerbs) bootstrapCommand() *cobra.Command {
	var f bootstrapFlags
	cmd := &cobra.Command{
		Use: "bootstrap", Short: "Make a Debian image from packages of a mirror", Args: cobra.NoArgs,
		Long: "Make a small Debian image without a registry: from packages of a Debian mirror. The keys\n" +
			"in --keyring must have signed the mirror's lists, and each package must be the one that\n" +
			"the lists name. The packages are installed in a sandbox without a network.",
		Example: "  crannog image bootstrap\n" +
			"  crannog image bootstrap --suite bookworm --include python3 -t localhost/python:3\n" +
			"  crannog run --image localhost/debian:bookworm -- cat /etc/debian_version",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error { return a.bootstrap(ctx, c, &f) })
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.tag, "tag", "t", "", "`NAME:TAG` of the image (default localhost/debian:SUITE)")
	fl.StringVar(&f.suite, "suite", "bookworm", "`suite` of Debian, by its name")
	fl.StringVar(&f.mirror, "mirror", debian.DefaultMirror, "`URL` of the mirror")
	fl.StringVar(&f.keyring, "keyring", debian.DefaultKeyring, "`file` with the OpenPGP keys that may sign the mirror's lists")
	fl.StringSliceVar(&f.include, "include", nil, "further `packages`, separated by commas; may be repeated")
	fl.StringVar(&f.progress, "progress", "auto", "`form` of the progress: plain, tty, json or auto")
	return cmd
}

func (a imageVerbs) bootstrap(ctx context.Context, c *connection, f *bootstrapFlags) error {
	if f.tag == "" {
		f.tag = "localhost/debian:" + f.suite
	}
	show, err := templateVerbs(a).newBuildProgress(f.progress)
	if err != nil {
		return err
	}
	defer show.end()
	req := api.CreateBuild{Tag: f.tag, Dockerfile: bootstrapFile, Access: &api.Access{Net: "none"}}
	// The server accepts the request before any package is fetched.
	img, err := c.Build(ctx, req, func(w io.Writer) error { return f.pack(ctx, w, show.note) }, show.created, show.event)
	show.end()
	if err != nil {
		return fail("make "+inert(f.tag), err)
	}
	return a.printImage(img, nil)
}

// pack writes the files of the build.
func (f *bootstrapFlags) pack(ctx context.Context, w io.Writer, report func(string)) (err error) {
	dir, err := os.MkdirTemp("", "crannog-bootstrap-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	err = debian.Prepare(ctx, dir, debian.Options{
		Mirror: f.mirror, Suite: f.suite, Keyring: f.keyring, Include: f.include, Client: &http.Client{Timeout: fetchTimeout}, Report: report,
	})
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	ignore, err := buildcontext.ParseIgnore(nil)
	if err != nil {
		return err
	}
	return buildcontext.Pack(ctx, root, ignore, w)
}
