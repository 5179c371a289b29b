package server

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/sandbox"
)

// buildSandboxes implements build.Sandboxes. Each command of a build runs in a sandbox of the
// service, with the same checks as for any other caller.
type buildSandboxes struct {
	d        *Server
	roots    *build.Roots
	commands *v1.Commands
}

// buildLabel is the metadata of a build's sandboxes. Its value is the build's ID.
const buildLabel = "crannog.build"

// maxCommandTime limits one RUN, and the life of its sandbox if this process dies.
const maxCommandTime = 2 * time.Hour

// Runner implements build.Sandboxes.
func (b *buildSandboxes) Runner(requester sandbox.Principal, id string, access sandbox.Access, limits sandbox.Limits) solve.Runner {
	return &buildRunner{b, requester, id, access, limits}
}

// Clean implements build.Sandboxes.
func (b *buildSandboxes) Clean(ctx context.Context, id string) error {
	return b.d.endLabelled(ctx, buildLabel, id)
}

type buildRunner struct {
	*buildSandboxes
	requester sandbox.Principal
	id        string
	access    sandbox.Access
	limits    sandbox.Limits
}

// Run implements solve.Runner.
func (b *buildRunner) Run(ctx context.Context, c solve.Command) (code int, err error) {
	image := b.d.options.Library.View(c.Tree, c.Binds...)
	if c.HostPrograms {
		host, err := b.d.options.Templates.Resolve(ctx, sandbox.Reference{Name: sandbox.BaseTemplate})
		if err != nil {
			return 0, err
		}
		image = host.Image
	}
	template, forget := b.roots.Show(sandbox.Template{Image: image, DefaultUser: "root", DefaultDir: "/"})
	defer forget()
	access := b.access
	if c.NoNetwork {
		// The level and its rules about files still apply.
		access.Net, access.Allow, access.Lists = sandbox.NetNone, nil, nil
	}
	sb, err := b.d.Service.Create(ctx, b.requester, sandbox.CreateRequest{
		Template: template, Timeout: maxCommandTime, Ephemeral: b.requester.OnHost(), Metadata: map[string]string{buildLabel: b.id}, Access: access, Limits: b.limits,
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		// A canceled build must not leave its sandbox either.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if removeErr := b.d.Service.Forget(ctx, b.requester, sb.ID); removeErr != nil && fault.KindOf(removeErr) != fault.NotFound {
			err = errors.Join(err, removeErr)
		}
	}()
	spec := client.Spec{Cmd: c.Args[0], Args: c.Args[1:], Env: c.Env, Dir: c.Dir, User: c.User, Timeout: maxCommandTime}
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	exit, err := b.commands.Run(ctx, b.requester, sb, spec, c.Output)
	if err != nil {
		return 0, err
	}
	if exit.Code != 0 {
		return exit.Code, nil
	}
	buildEngine, err := b.d.Engines.Of(sb.Engine)
	if err != nil {
		return 0, err
	}
	archiver, ok := buildEngine.(engine.Archiver)
	if !ok {
		return 0, fault.Newf(fault.Unsupported, "build_unsupported", "the engine %s cannot report what a command has changed", sb.Engine)
	}
	return 0, archiver.Archive(ctx, sb.ID, c.Changes)
}
