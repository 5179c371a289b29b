package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/sandbox"
)

// programFlags are the flags about the program of a template.
type programFlags struct{ start, ready, timeout string }

func (p *programFlags) add(f *pflag.FlagSet) {
	f.StringVar(&p.start, "start", "", "shell `command` of the program that runs in each sandbox from the beginning (default: the image's label crannog.start)")
	f.StringVar(&p.ready, "ready", "", "shell `command` that succeeds once that program is ready (default: the image's HEALTHCHECK)")
	f.StringVar(&p.timeout, "ready-timeout", "", "`time` until the program must be ready (default 1m)")
}

// into adds the program to a request.
func (p *programFlags) into(req *api.CreateTemplate) error {
	if p.start == "" && (p.ready != "" || p.timeout != "") {
		return usagef("--ready and --ready-timeout need --start")
	}
	if p.start != "" {
		req.Start = shell(p.start)
	}
	if p.ready != "" {
		req.Ready = shell(p.ready)
	}
	if p.timeout != "" {
		d, err := config.ParseDuration(p.timeout)
		if err != nil || d <= 0 {
			return usagef("--ready-timeout: %q is not a time such as 30s", p.timeout)
		}
		req.ReadyTimeoutSeconds = d.Seconds()
	}
	return nil
}

// shell returns the command line that runs text in a shell.
func shell(text string) []string { return []string{"/bin/sh", "-c", text} }

// createFlags are the flags of crannog template create.
type createFlags struct {
	image, user, dir string
	env              []string
	accessFlags
	programFlags
}

func (a templateVerbs) createCommand() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "create NAME[:TAG]", Short: "Create a version of a template from an image", Args: cobra.ExactArgs(1),
		Long: "Create a version of a template: an image, with the limits, the policy, the user, the\n" +
			"variables and the program of its sandboxes. The version keeps the image by its digest,\n" +
			"so its sandboxes start from the same files even if the image's name later moves on.\n" +
			"The command waits until the program is ready, and saves its memory where the engine\n" +
			"can: sandboxes of the template then start with the program running. The tag leads to\n" +
			"the new version; without a tag, and for the first version, so does the name alone.",
		Example: "  crannog template create web:1 --image python:3.12-slim \\\n" +
			"    --start 'python -m http.server 8000' --ready 'python -c \"import socket; socket.create_connection((\\\"127.0.0.1\\\", 8000))\"'\n" +
			"  crannog run --template web -- python app.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				req, err := a.createRequest(cmd, &f, args[0])
				if err != nil {
					return err
				}
				stop := a.progress("creating the template " + inert(args[0]))
				t, err := c.CreateTemplate(ctx, req)
				stop()
				if err != nil {
					return fail("create the template "+inert(args[0]), err)
				}
				return a.printTemplate(t)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.image, "image", "", "`image` with the files (default: the image with the template's name)")
	fl.StringVarP(&f.user, "user", "u", "", "`user` of commands (default: that of the image)")
	fl.StringVarP(&f.dir, "workdir", "w", "", "working `directory` of commands (default: that of the image)")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` inside; NAME alone copies the value from here, if it is set")
	f.programFlags.add(fl)
	fl.StringVar(&f.level, "level", "", "`level` of the policy: strict, standard, light or minimal")
	fl.StringVar(&f.policy, "policy", "", "`file` with a policy document")
	fl.StringVar(&f.net, "net", "", "upper limit of its sandboxes' network: none, dev, open or policy")
	fl.StringArrayVar(&f.allow, "allow", nil, "allow `HOST[:PORT]`; may be repeated")
	addLimits(fl, "its sandboxes")
	f.offer(cmd)
	return cmd
}

// createRequest returns the request for the flags of create.
func (a templateVerbs) createRequest(cmd *cobra.Command, f *createFlags, name string) (req api.CreateTemplate, err error) {
	req = api.CreateTemplate{Template: name, Image: f.image, User: f.user, WorkingDir: f.dir}
	if req.Image == "" {
		req.Image = name
	}
	env, err := a.assignments(f.env, nil)
	if err != nil {
		return req, err
	}
	if req.Env, err = pairsOf("--env", env); err != nil {
		return req, err
	}
	if err := f.programFlags.into(&req); err != nil {
		return req, err
	}
	if slices.ContainsFunc([]string{"level", "policy", "net", "allow"}, cmd.Flags().Changed) {
		access, err := f.access()
		if err != nil {
			return req, err
		}
		req.Access = &access
	}
	req.Limits = a.flagLimits(cmd)
	return req, nil
}

// addLimits adds the flags of flagLimits. of names the sandboxes that they limit.
func addLimits(fl *pflag.FlagSet, of string) {
	// load reads these, because they are settings.
	fl.String("memory", "", "memory of "+of+", such as 512m")
	fl.String("cpus", "", "CPUs of "+of+", such as 1.5")
	fl.String("pids", "", "processes and threads of "+of)
	fl.String("disk", "", "disk space for the files of "+of+", such as 1g")
}

// flagLimits returns the limits that flags set, or nil if there is none. A setting of the user for
// sandboxes of his own does not count: only a flag is about a template or a build.
func (a templateVerbs) flagLimits(cmd *cobra.Command) *api.Limits {
	var limits api.Limits
	set := false
	for flag, apply := range map[string]func(){
		"memory": func() { limits.MemoryBytes = a.config.Sandbox.MemoryBytes }, "cpus": func() { limits.CPUMillis = a.config.Sandbox.MilliCPU },
		"pids": func() { limits.PIDs = a.config.Sandbox.PIDs }, "disk": func() { limits.DiskBytes = a.config.Sandbox.DiskBytes },
	} {
		if cmd.Flags().Changed(flag) {
			apply()
			set = true
		}
	}
	if !set {
		return nil
	}
	return &limits
}

// printTemplate prints the template and its newest version, or one object.
func (a templateVerbs) printTemplate(t api.Template) error {
	if a.json {
		return a.object(t)
	}
	if n := len(t.Versions); n > 0 {
		v := t.Versions[n-1]
		fmt.Fprintf(a.Stdout, "%s:version-%d %s\n", inert(t.Name), v.Version, v.ImageDigest)
		if v.Note != "" {
			a.note("%s", inert(v.Note))
		}
	}
	return nil
}

// createVersion creates a version of the template that has the name of the built image.
func (a templateVerbs) createVersion(ctx context.Context, c *connection, program *programFlags, name string, img api.Image) error {
	req := api.CreateTemplate{Template: name, Image: img.Name}
	if err := program.into(&req); err != nil {
		return err
	}
	if _, err := sandbox.ParseReference(name); err != nil {
		if len(req.Start) > 0 {
			return usagef("--start: %q is not a valid template name", name).hint("create one from the image: crannog template create NAME --image " + inert(img.Name))
		}
		return nil // a name with a registry cannot name a template
	}
	if _, err := c.CreateTemplate(ctx, req); err != nil {
		return fail("create a template from "+inert(name), err)
	}
	return nil
}

func (a templateVerbs) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates", Args: cobra.NoArgs,
		Long: "List templates, with a line for each version. READY says whether sandboxes continue\n" +
			"from memory in which the program is ready, or start it themselves.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				all, err := c.Templates(cmd.Context())
				if err != nil {
					return fail("list templates", err)
				}
				now := time.Now()
				var rows []templateRow
				for _, t := range all {
					for _, v := range t.Versions {
						rows = append(rows, templateRow{t.Name, t.ID, v})
					}
				}
				return list(&a.terminal, &f, rows, func(r templateRow) string { return r.Name + ":version-" + strconv.Itoa(r.Version) },
					[]string{"NAME", "VERSION", "TAGS", "IMAGE", "DIGEST", "READY", "CREATED"}, func(r templateRow) []string {
						return []string{r.Name, strconv.Itoa(r.Version), strings.Join(r.Tags, ","), r.Image, shortDigest(r.ImageDigest), readiness(r.TemplateVersion), ago(r.CreatedAt, now)}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

// templateRow is one version in the list.
type templateRow struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	api.TemplateVersion
}

// readiness returns the READY cell of a version.
func readiness(v api.TemplateVersion) string {
	switch {
	case v.Making:
		return "making"
	case v.HasMemory:
		return "memory"
	case len(v.Start) > 0:
		return "starts"
	}
	return ""
}

func (a templateVerbs) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect TEMPLATE...", Short: "Describe templates as JSON", Args: cobra.MinimumNArgs(1),
		Long: "Describe templates as JSON: versions, tags, aliases, images and settings. A template with\n" +
			"\"host\": true shows the programs of the server's machine. code-interpreter-v1 does until\n" +
			"a template of this name is built.",
		ValidArgsFunction: a.completeTemplates,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				return a.every(cmd.Context(), args, func(name string) error {
					t, err := c.InspectTemplate(cmd.Context(), name)
					if err != nil {
						return fail("inspect "+inert(name), err)
					}
					return a.object(t)
				})
			})
		},
	}
}

func (a templateVerbs) tagCommand() *cobra.Command {
	var aliases []string
	cmd := &cobra.Command{
		Use: "tag TEMPLATE[:TAG] [TAG...]", Short: "Set tags of a template version, or aliases of a template", Args: cobra.MinimumNArgs(1),
		Long: "Set tags of the version TEMPLATE[:TAG]. The tag version-2 always means version 2.\n" +
			"The tag default is what the name alone means. Sandboxes and snapshots that exist\n" +
			"keep the files that they started from.",
		Example:           "  crannog template tag web:2 default stable\n  crannog template tag web:version-1 default\n  crannog template tag web --alias site",
		ValidArgsFunction: a.completeTemplates,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && len(aliases) == 0 {
				return usagef("neither a tag nor --alias was given")
			}
			return a.with(cmd.Context(), func(c *connection) error {
				t, err := c.TagTemplate(cmd.Context(), api.TagTemplate{Template: args[0], Tags: args[1:], Aliases: aliases})
				if err != nil {
					return fail("tag "+inert(args[0]), err)
				}
				if a.json {
					return a.object(t)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringArrayVar(&aliases, "alias", nil, "additional `name` of the template; may be repeated")
	return cmd
}

func (a templateVerbs) removeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm TEMPLATE[:TAG]...", Aliases: []string{"remove"}, Short: "Remove templates, tags or aliases", Args: cobra.MinimumNArgs(1),
		Long: "Remove a template with all its versions, an alias, or a tag with the version to which\n" +
			"no other tag refers. Sandboxes and snapshots keep the data that they need.",
		Example:           "  crannog template rm web:1\n  crannog template rm web",
		ValidArgsFunction: a.completeTemplates,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(name string) error {
					if err := c.RemoveTemplate(ctx, name); err != nil {
						return fail("remove "+inert(name), err)
					}
					return nil
				})
			})
		},
	}
}

// completeTemplates completes the names of templates.
func (a templateVerbs) completeTemplates(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	a.askServer(cmd.Context(), func(ctx context.Context, c *connection) error {
		all, err := c.Templates(ctx)
		for _, t := range all {
			if !slices.Contains(args, t.Name) {
				found = append(found, cobra.CompletionWithDesc(t.Name, fmt.Sprintf("%d versions", len(t.Versions))))
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// commitCommand creates an image from a sandbox.
func (a imageVerbs) commitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "commit SANDBOX IMAGE", Short: "Create an image from the files of a sandbox", Args: cobra.ExactArgs(2),
		Long: "Create an image from a running sandbox: the image that it started from, and a layer of the\n" +
			"files that it has changed, without the workspace and other files of the host.",
		Example:           "  crannog commit dev app:2\n  crannog run --image app:2",
		ValidArgsFunction: a.completeStates("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				sb, err := c.find(ctx, args[0])
				if err != nil {
					return err
				}
				stop := a.progress("creating the image " + inert(args[1]))
				img, err := sb.Commit(ctx, args[1])
				stop()
				if err != nil {
					return fail("create an image of "+inert(args[0]), err)
				}
				return a.printImage(img, nil)
			})
		},
	}
}
