package git_test

import (
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/egress/policy"
)

// pushRules replace a policy in tests: they decide what a push to one repository may do. The zero
// effect is Deny, so pushRules{} allows nothing. A ref is listed if a glob of Allow matches it. A
// tag is listed only by a glob that begins with refs/tags/, because others build and release from
// tags, and "refs/**" is meant for branches.
type pushRules struct {
	Allow []string
	// Unlisted is for refs that Allow does not list.
	Unlisted egress.Effect
	// Delete is for deletions, also of listed refs.
	Delete egress.Effect
	// Force is for pushes that may drop commits. The protocol does not show whether one does, so
	// this applies to every change of an existing ref, also of a listed one: with Deny a branch can
	// be created and not changed.
	Force egress.Effect
	// Move are globs of refs that may be changed in spite of Force: a sandbox's own branches, where
	// dropped commits are its own. They must be listed as well.
	Move []string
	// Tags is for tags that Allow does not list. Unlisted must permit such a tag too.
	Tags egress.Effect
	// Options is for push options, which some forges take as orders: to merge, to skip checks.
	Options egress.Effect
}

// decide decides about one command. The reason describes the deciding rule in a few words, and is
// "" for Allow.
func (p pushRules) decide(c git.Command) (egress.Effect, string) {
	effect, reason := egress.Allow, ""
	tighten := func(e egress.Effect, why string) {
		if strength(e) > strength(effect) {
			effect, reason = known(e), why
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

// decideRequest decides about a whole push: the strictest decision of its parts applies. There is a
// reason for each command.
func (p pushRules) decideRequest(r *git.Request) (effect egress.Effect, reasons []string) {
	effect = egress.Allow
	for _, c := range r.Commands {
		e, why := p.decide(c)
		if len(r.Options) > 0 && strength(p.Options) > strength(e) {
			e, why = known(p.Options), "a push option may be an order to the server"
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

func known(e egress.Effect) egress.Effect {
	if strength(e) == 2 {
		return egress.Deny
	}
	return e
}
