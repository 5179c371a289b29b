package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/image/sbom"
)

// templateVerbs are the commands that create and manage templates.
type templateVerbs struct{ *app }

func (a templateVerbs) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "template", Short: "Create images from Dockerfiles, and templates from images",
		Long: "Create images and templates for sandboxes. build creates an image from a Dockerfile, without Docker:\n" +
			"each RUN runs in a sandbox of its own, under a policy. create creates a template from an\n" +
			"image: versions with limits, a policy, and a program that is running when a sandbox of\n" +
			"the template starts. crannog run --template NAME[:TAG] starts a sandbox from one.",
		Example: "  crannog template build -t app:1 .\n  crannog run --template app:1 -- ./test",
	}
	cmd.AddCommand(a.buildCommand(), a.buildsCommand(), a.createCommand(), a.listCommand(), a.inspectCommand(), a.tagCommand(), a.removeCommand())
	return cmd
}

// buildFlags are the flags of crannog template build.
type buildFlags struct {
	file, tag, target, platform, progress, output, sbom, provenance string
	args, secrets                                                   []string
	noCache, push, attach                                           bool
	accessFlags
	programFlags
}

func (a templateVerbs) buildCommand() *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use: "build DIR", Short: "Build an image from a Dockerfile", Args: cobra.ExactArgs(1),
		Long: "Build an image from a Dockerfile and the files of DIR. Each RUN runs as root in a sandbox\n" +
			"of its own, which reaches package registries and git forges unless --net is given.\n" +
			"A step whose inputs have not changed comes from the cache. Files that DIR/.dockerignore\n" +
			"names are omitted. SOURCE_DATE_EPOCH, as variable or --build-arg, makes the image\n" +
			"reproducible. The image is also a version of the template with its name,\n" +
			"unless the name contains a registry.",
		Example: "  crannog template build -t app:1 .\n" +
			"  crannog template build -f build/Dockerfile -t app:1 --build-arg VERSION=2 .\n" +
			"  crannog template build -t app:1 --secret id=token,env=TOKEN --net none .",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error { return a.build(ctx, c, &f, args[0], a.flagLimits(cmd)) })
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "file", "f", "", "`file` with the Dockerfile (default DIR/Dockerfile; - is standard input)")
	fl.StringVarP(&f.tag, "tag", "t", "", "`NAME:TAG` of the image (default: the name of DIR)")
	fl.StringVar(&f.target, "target", "", "`stage` to build (default: the last one)")
	fl.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG, as `NAME=VALUE`, or NAME for that of this environment; may be repeated")
	fl.StringArrayVar(&f.secrets, "secret", nil, "secret for RUN --mount=type=secret, as `id=ID,src=FILE` or id=ID,env=NAME; may be repeated")
	fl.BoolVar(&f.noCache, "no-cache", false, "run every step again")
	fl.StringVar(&f.platform, "platform", "", "`platform`, which must be that of the server's machine")
	fl.StringVar(&f.progress, "progress", "auto", "`form` of the progress: plain, tty, json or auto")
	fl.BoolVar(&f.push, "push", false, "send the image to the registry in its name")
	fl.StringVarP(&f.output, "output", "o", "", "also write the image to a `file`, as a tar of an OCI layout")
	fl.StringVar(&f.sbom, "sbom", "", "also write the packages in the image to a `file`, as JSON of SPDX 2.3")
	fl.StringVar(&f.provenance, "provenance", "", "write a signed statement about the build to a `file`, for crannog image verify")
	fl.BoolVar(&f.attach, "attach", false, "with --push, also attach the files of --sbom and --provenance to the image in the registry")
	f.programFlags.add(fl)
	fl.StringVar(&f.level, "level", "", "`level` of the policy: standard, light or minimal (default standard)")
	fl.StringVar(&f.policy, "policy", "", "`file` with a policy document")
	fl.StringVar(&f.net, "net", "dev", "network of RUN: none, dev, open or policy")
	fl.StringArrayVar(&f.allow, "allow", nil, "allow `HOST[:PORT]`; may be repeated")
	addLimits(fl, "the sandbox of a RUN")
	f.offer(cmd)
	return cmd
}

// maxDockerfile bounds a Dockerfile, in bytes.
const maxDockerfile = 512 << 10

func (a templateVerbs) build(ctx context.Context, c *connection, f *buildFlags, dir string, limits *api.Limits) error {
	if f.attach && (!f.push || f.sbom+f.provenance == "") {
		return usagef("--attach needs --push, and --sbom or --provenance")
	}
	if f.attach && slices.Contains([]string{f.sbom, f.provenance}, "-") {
		return usagef("--attach needs files, and - is standard output")
	}
	req, source, err := a.buildRequest(f, dir)
	if err != nil {
		return err
	}
	req.Limits = limits
	if req.Provenance = f.provenance != ""; req.Provenance {
		// Check before the build, which would otherwise be for nothing.
		if err := checkVacant(f.provenance); err != nil {
			return fail("write the provenance", err)
		}
	}
	show, err := a.newBuildProgress(f.progress)
	if err != nil {
		return err
	}
	defer show.end()
	var id string
	created := func(b api.Build) { id = b.ID; show.created(b) }
	img, err := c.Build(ctx, req, source, created, show.event)
	show.end()
	if err != nil {
		return fail("build "+inert(req.Tag), err)
	}
	if f.provenance != "" {
		if err := writeBuildProvenance(ctx, c, id, f.provenance); err != nil {
			return fail("write the provenance of "+inert(req.Tag), err)
		}
	}
	if f.output != "" {
		if err := exportTo(f.output, func(w io.Writer) error { return c.ExportImage(ctx, img.Name, "oci", w) }); err != nil {
			return fail("write "+f.output, err)
		}
	}
	if f.sbom != "" {
		if err := imageVerbs(a).writeSBOM(ctx, c, img, sbom.SPDX, f.sbom); err != nil {
			return err
		}
	}
	for _, file := range []string{f.sbom, f.provenance} {
		if f.attach && file != "" {
			if _, err := imageVerbs(a).attachFile(ctx, c, &api.AttachToImage{Image: img.Name}, file); err != nil {
				return err
			}
		}
	}
	if err := a.createVersion(ctx, c, &f.programFlags, req.Tag, img); err != nil {
		return err
	}
	return imageVerbs(a).printImage(img, nil)
}

// buildRequest reads the request for a build, and returns the function that writes its context.
func (a templateVerbs) buildRequest(f *buildFlags, dir string) (req api.CreateBuild, source func(io.Writer) error, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return req, nil, fail("open the directory "+dir, err)
	}
	file, nameInContext := f.file, "Dockerfile"
	switch file {
	case "":
		file = filepath.Join(dir, "Dockerfile")
	case "-":
		nameInContext = ""
	default:
		nameInContext = file
		if rel, err := filepath.Rel(dir, file); err == nil {
			nameInContext = filepath.ToSlash(rel)
		}
	}
	text, err := a.dockerfile(file)
	if err != nil {
		return req, nil, fail("read the Dockerfile", err)
	}
	ignore, err := buildcontext.FindIgnore(root, nameInContext)
	if err != nil {
		return req, nil, fail("read .dockerignore", err)
	}
	req = api.CreateBuild{
		Tag: f.tag, Dockerfile: string(text), Target: f.target, Platform: f.platform, NoCache: f.noCache, Push: f.push,
		Args: map[string]string{}, Secrets: map[string][]byte{},
	}
	if req.Tag == "" {
		full, err := filepath.Abs(dir)
		if err != nil {
			return req, nil, err
		}
		req.Tag = strings.ToLower(filepath.Base(full))
	}
	for _, arg := range f.args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			value = a.variable(name)
		}
		req.Args[name] = value
	}
	epoch := req.Args["SOURCE_DATE_EPOCH"]
	if epoch == "" {
		epoch = a.variable("SOURCE_DATE_EPOCH")
	}
	if epoch != "" {
		if req.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil || req.Epoch < 0 {
			return req, nil, usagef("SOURCE_DATE_EPOCH: %q is not a number of seconds", epoch)
		}
	}
	if err := a.buildSecrets(f.secrets, req.Secrets); err != nil {
		return req, nil, err
	}
	access, err := f.access()
	if err != nil {
		return req, nil, err
	}
	req.Access = &access
	return req, func(w io.Writer) error {
		defer root.Close()
		return buildcontext.Pack(context.Background(), root, ignore, w)
	}, nil
}

// dockerfile reads a Dockerfile, from standard input for "-".
func (a templateVerbs) dockerfile(name string) ([]byte, error) {
	var from io.Reader = a.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxDockerfile+1))
	if err == nil && len(text) > maxDockerfile {
		err = fmt.Errorf("the file is larger than %d bytes", maxDockerfile)
	}
	return text, err
}

// maxSecret bounds one secret, in bytes.
const maxSecret = 64 << 10

// buildSecrets reads the values of --secret.
func (a templateVerbs) buildSecrets(list []string, into map[string][]byte) error {
	for _, text := range list {
		fields := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(part, "=")
			if !ok {
				return usagef("--secret: %q is not id=ID,src=FILE or id=ID,env=NAME", text)
			}
			fields[name] = value
		}
		id := fields["id"]
		if id == "" {
			return usagef("--secret: %q has no id", text)
		}
		source := fields["src"]
		if source == "" {
			source = fields["source"]
		}
		name := fields["env"]
		if source == "" {
			if name == "" {
				name = id
			}
			value := a.variable(name)
			if value == "" {
				return usagef("--secret: the variable %s is not set", name)
			}
			into[id] = []byte(value)
			continue
		}
		value, err := os.ReadFile(source)
		if err != nil {
			return fail("read a secret", err)
		}
		if len(value) > maxSecret {
			return usagef("--secret: %s is larger than %d bytes", source, maxSecret)
		}
		into[id] = bytes.Clone(value)
	}
	return nil
}

func (a templateVerbs) buildsCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "builds", Short: "List builds", Args: cobra.NoArgs,
		Long: "List the last builds, the newest first. A build whose server ended has failed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				builds, err := c.Builds(cmd.Context())
				if err != nil {
					return fail("list builds", err)
				}
				return list(&a.terminal, &f, builds, func(b api.Build) string { return b.ID },
					[]string{"ID", "IMAGE", "STATE", "DIGEST", "ERROR"}, func(b api.Build) []string {
						return []string{b.ID, b.Tag, b.State, shortDigest(b.Digest), inert(b.Error)}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}
