package git_test

import (
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/egress/policy"
)

// pushRules decide which pushes to one repository are allowed, in place of a policy. The zero
// effect is Deny, so pushRules{} allows nothing. A ref is listed if a glob of Allow matches it. A
// tag is listed only by a glob that begins with refs/tags/: "refs/**" is meant for branches, and
// people build and release from tags.
type pushRules struct {
	Allow []string
	// Unlisted applies to refs that Allow does not list.
	Unlisted egress.Effect
	// Delete applies to deletions, also of listed refs.
	Delete egress.Effect
	// Force applies to pushes that may drop commits. The protocol does not show whether a push
	// drops commits, so Force applies to every change of an existing ref, also of a listed one.
	// With Deny a branch can be created but not changed.
	Force egress.Effect
	// Move are globs of listed refs that may be changed in spite of Force, such as a sandbox's own
	// branches.
	Move []string
	// Tags applies to tags that Allow does not list. Unlisted must permit such a tag too.
	Tags egress.Effect
	// Options applies to push options, which some forges execute, for example to merge.
	Options egress.Effect
}

// decide decides about one command. It returns a short description of the deciding rule, or "" for
// Allow.
func (p pushRules) decide(c git.Command) (egress.Effect, string) {
	effect, reason := egress.Allow, ""
	tighten := func(e egress.Effect, why string) {
		if strength(e) > strength(effect) {
			effect, reason = knownEffect(e), why
		}
	}
	tag := strings.HasPrefix(c.Ref, "refs/tags/")
	if !p.lists(c.Ref, tag) {
		tighten(p.Unlisted, "no rule lists this ref")
		if tag {
			tighten(p.Tags, "a tag that no rule lists")
		}
	}
	if c.Deletes() {
		tighten(p.Delete, "a deletion")
	}
	if c.MayForce() && !covered(p.Move, c.Ref) {
		tighten(p.Force, "the ref exists, and this push may drop commits of it")
	}
	return effect, reason
}

// decideRequest decides about a whole push. The strictest decision of its commands applies. reasons
// has one reason for each command.
func (p pushRules) decideRequest(r *git.Request) (effect egress.Effect, reasons []string) {
	effect = egress.Allow
	for _, c := range r.Commands {
		e, why := p.decide(c)
		if len(r.Options) > 0 && strength(p.Options) > strength(e) {
			e, why = knownEffect(p.Options), "a push option may be an order to the server"
		}
		reasons = append(reasons, why)
		if strength(e) > strength(effect) {
			effect = e
		}
	}
	return effect, reasons
}

func (p pushRules) lists(ref string, tag bool) bool {
	return slices.ContainsFunc(p.Allow, func(g string) bool {
		return (!tag || strings.HasPrefix(g, "refs/tags/")) && policy.Match(g, ref)
	})
}

func covered(globs []string, ref string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return policy.Match(g, ref) })
}

func strength(e egress.Effect) int {
	switch e {
	case egress.Allow:
		return 0
	case egress.Ask:
		return 1
	default:
		// An unknown effect is never weaker than Deny.
		return 2
	}
}

func knownEffect(e egress.Effect) egress.Effect {
	if strength(e) == 2 {
		return egress.Deny
	}
	return e
}
