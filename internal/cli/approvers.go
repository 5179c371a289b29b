package cli

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/policy"
)

// warnOfApprovers warns, before a command runs, that its changes will need the approval of a second
// person. After the command it would be too late to learn that there is no second person, or
// that the person cannot sign in because no server runs.
func (b *runSandbox) warnOfApprovers(ctx context.Context) {
	c := b.app.config
	hasDocument := b.flags.policy != "" || c.Policies.Organisation != "" || c.Policies.Project != ""
	if !b.local || !hasDocument && first(b.flags.level, c.Policies.Level) != "strict" {
		// The policies of another machine are not known here. Only one level needs
		// several people, so the other levels skip reading the policies.
		return
	}
	p, err := policyVerbs{b.app}.policyFor(ctx, "", &b.flags.accessFlags)
	if err != nil {
		return // the sandbox has this policy already, so an error is not the user's mistake
	}
	access, err := b.flags.requestedAccess()
	if err != nil {
		return
	}
	if b.hasWorkspace && !b.flags.noChanges && exportAsks(p) || access.Linked() {
		policyVerbs{b.app}.notePeople(p)
	}
}

// exportAsks reports whether a policy asks for approval before changes are exported.
func exportAsks(p *policy.Policy) bool {
	out := p.Document().Filesystem.Export
	return out.Do == egress.Ask || out.Deletions == egress.Ask
}

// noteQuorum prints the note of notePeople for a checked document. The note is no finding, because
// a document may require several people on purpose.
func (a policyVerbs) noteQuorum(text []byte, layer string, above []policy.Layer) {
	d, err := policy.Parse(text)
	if err != nil {
		return // the check reports it
	}
	p, _, err := policy.Compile(append(slices.Clip(above), policy.Layer{Kind: layer, Document: d})...)
	if err == nil {
		a.notePeople(p)
	}
}

// notePeople prints how many people must approve, if more than one.
func (a policyVerbs) notePeople(p *policy.Policy) {
	if n := p.Document().Approvals.Quorum; n > 1 {
		a.note("requests of this policy need the approval of %d people: you, and %s", n, approval.SecondPerson)
	}
}
