package lifecycle

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// compileFor compiles an access for a sandbox whose engine is already chosen. It returns an error
// if the policy requires a stronger boundary, or forbids the containers inside that the sandbox
// has: no sandbox is better than one with weaker isolation than requested.
func (pl *planner) compileFor(r sandbox.Row, a sandbox.Access) (*policy.Policy, error) {
	p, err := pl.access.Compile(a)
	if err == nil {
		err = checkContainers(r.Base.Containers, p)
	}
	if err != nil {
		return nil, err
	}
	e, err := pl.engines.Of(r.Engine)
	if err != nil {
		return nil, err
	}
	return p, pl.engines.Check(pl.engines.choice(p), e)
}

// compose returns the specifications for the engine and the guest, equal to those of the first
// boot. It records in the row which checks the guest will make.
func (pl *planner) compose(r *sandbox.Row, p *policy.Policy) (engine.Spec, guest.Config) {
	b := r.Base
	return rootfs.ComposeMasked(r, sandbox.Template{
		ID: r.TemplateID, Image: b.Image, DefaultUser: b.DefaultUser, DefaultDir: b.DefaultDir, Env: b.Env, Revision: b.Revision, ImageDigest: b.ImageDigest, Tools: b.Tools, Start: b.Start,
		Older: sandbox.GuestKnows - b.Knows,
	}, p, pl.engines.info(r.Engine), rootfs.MasksOfBase(b), b.NoRoot, r.Hostname())
}

// planCopies returns the policy of the copies of a sandbox, and the sandbox's own secret values,
// which are encrypted again for each copy.
func (pl *planner) planCopies(ctx context.Context, r sandbox.Row) (*policy.Policy, map[string]config.Secret, error) {
	p, err := pl.compileFor(r, r.Access)
	if err != nil || r.Access.Own == "" {
		return p, nil, err
	}
	a, err := pl.access.Resolve(ctx, r, p)
	if err != nil {
		return nil, nil, err
	}
	values := make(map[string]config.Secret)
	for _, secret := range a.Secrets {
		if strings.HasPrefix(secret.Name, policy.OwnPrefix) {
			values[secret.Name] = config.Secret(secret.Value)
		}
	}
	return p, values, nil
}

// copyRow returns the row of a copy, with an ID, tokens and an end of its own.
func (pl *planner) copyRow(r sandbox.Row, values map[string]config.Secret, ttl time.Duration, ephemeral bool) sandbox.Row {
	c := r
	c.ID, c.Name, c.Parent, c.State = newID(), "", r.ID, sandbox.Creating
	c.AccessToken, c.ControlToken = ids.NewToken(), ids.NewToken()
	if r.TrafficToken != "" {
		c.TrafficToken = ids.NewToken()
	}
	c.StartedAt = time.Now().UTC().Round(0)
	c.EndAt, c.CreateTimeout = time.Time{}, ttl
	if ttl > 0 {
		c.EndAt = c.StartedAt.Add(ttl)
	}
	c.Ephemeral, c.Process, c.Actor, c.Run = ephemeral, pl.self, sandbox.Process{}, 1
	c.Saved, c.Pending, c.Reason, c.Unlinked = sandbox.Saved{}, "", "", false
	c.Metadata, c.Env = maps.Clone(r.Metadata), maps.Clone(r.Env)
	c.Access.Values, c.Access.Own = nil, ""
	if len(values) > 0 {
		c.Access.Values = values
		c.Access = access.NameValues(c.Access)
	}
	return c
}
