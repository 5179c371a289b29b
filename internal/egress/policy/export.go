package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// Rules about exports from a sandbox. Links that lead out, setuid files and devices are never
// exported, whatever a document allows.
const (
	RuleExport    = "filesystem.export.do"
	RuleDeletions = "filesystem.export.deletions"
	RuleOnly      = "filesystem.export.only"
)

// exports combines the layers' settings about exports.
type exports struct {
	do, deletions setting
	// only has one entry for each layer that restricts paths. The globs of a lower layer need not
	// be within those of an upper one, because a file must match the globs of every layer.
	only []onlyGlobs
}

type onlyGlobs struct {
	layer    string
	patterns []string
	globs    []*glob
}

func (e *exports) merge(l Layer, warn func(field, text string)) {
	x := l.Document.Filesystem.Export
	e.do.merge(l, RuleExport, string(x.Do), effects, warn)
	e.deletions.merge(l, RuleDeletions, string(x.Deletions), effects, warn)
	if len(x.Only) == 0 {
		return
	}
	o := onlyGlobs{layer: l.Kind, patterns: x.Only}
	for _, g := range x.Only {
		o.globs = append(o.globs, newGlob(g))
	}
	e.only = append(e.only, o)
}

// into fills in missing effects, for policies that are older than export settings: each export then
// needs an approval.
func (e *exports) into(m *Document) {
	for _, s := range []*setting{&e.do, &e.deletions} {
		if s.value == "" {
			*s = setting{string(egress.Ask), LayerLevel}
		}
	}
	m.Filesystem.Export = Export{Do: e.do.effect(), Deletions: e.deletions.effect()}
	for _, o := range e.only {
		m.Filesystem.Export.Only = union(m.Filesystem.Export.Only, o.patterns)
	}
}

// MayExport reports whether a path, relative to the workspace, may be exported at all. If no layer
// lists paths, every path may be exported.
func (p *Policy) MayExport(path string) bool {
	for _, o := range p.export.only {
		if !slices.ContainsFunc(o.globs, func(g *glob) bool { return g.match(path, false) }) {
			return false
		}
	}
	return true
}

// Export decides about exporting files. Deletions, if there are any, are decided separately, and
// the stricter decision applies.
func (p *Policy) Export(deletions bool) egress.Decision {
	s, rule := p.export.do, RuleExport
	if deletions && p.export.deletions.effect().Stricter(s.effect()) {
		s, rule = p.export.deletions, RuleDeletions
	}
	d := egress.Decision{Effect: s.effect(), Rule: rule, Layer: s.layer, Policy: p.digest}
	switch d.Effect {
	case egress.Allow:
	case egress.Ask:
		d.Reason, d.Fix = rule+" of the "+s.layer+" layer asks about this.", "crannog approve"
	case egress.Deny:
		d.Reason = rule + " of the " + s.layer + " layer denies this."
	}
	return d
}

// ExplainExport decides about exporting one file, or its removal, and returns the steps.
func (p *Policy) ExplainExport(path string, removed bool) (egress.Decision, []Step) {
	var steps []Step
	for _, o := range p.export.only {
		text := "it is one of " + strings.Join(o.patterns, " ")
		matches := slices.ContainsFunc(o.globs, func(g *glob) bool { return g.match(path, false) })
		if !matches {
			text = "it does not match " + strings.Join(o.patterns, " ")
		}
		steps = append(steps, Step{Layer: o.layer, Rule: RuleOnly, Text: text})
		if !matches {
			d := egress.Decision{
				Effect: egress.Deny, Rule: RuleOnly, Layer: o.layer, Policy: p.digest,
				Reason: "The " + o.layer + " layer lists the paths that may be exported, and this one is not among them.",
			}
			return d, append(steps, Step{Layer: o.layer, Rule: RuleOnly, Effect: egress.Deny, Text: "decides"})
		}
	}
	steps = append(steps, Step{Layer: p.export.do.layer, Rule: RuleExport, Effect: p.export.do.effect(), Text: "what comes out"})
	if removed {
		steps = append(steps, Step{Layer: p.export.deletions.layer, Rule: RuleDeletions, Effect: p.export.deletions.effect(), Text: "what is removed outside too"})
	}
	d := p.Export(removed)
	return d, append(steps, Step{Layer: d.Layer, Rule: d.Rule, Effect: d.Effect, Text: "decides"})
}

// Removes returns the decision about removals alone.
func (p *Policy) Removes() egress.Effect { return p.export.deletions.effect() }

// export checks a document's export settings.
func (c *checker) export(e *Export) {
	c.effect(RuleExport, e.Do)
	c.effect(RuleDeletions, e.Deletions)
	c.list(RuleOnly, len(e.Only), maxEntries, e.Only != nil && len(e.Only) == 0)
	for i, g := range e.Only {
		field := RuleOnly + "[" + strconv.Itoa(i) + "]"
		if strings.HasPrefix(g, "/") || strings.HasSuffix(g, "/") {
			c.bad(field, "%q must be below the workspace, without a slash at either end; dist/** is everything in dist", clip(g))
			continue
		}
		c.glob(field, g)
	}
}

// Artifacts returns the document for --artifact: only files that match the globs are exported.
func Artifacts(globs ...string) (Document, error) {
	d := Document{Policy: "v1", Name: "artifacts", Filesystem: Filesystem{Export: Export{Only: globs}}}
	return d, d.check(nil)
}

// Chosen returns a test for a list of paths (with everything below them) and globs. An empty list
// matches everything.
func Chosen(names []string) (func(path string) bool, error) {
	if len(names) == 0 {
		return func(string) bool { return true }, nil
	}
	globs := make([]*glob, 0, 2*len(names))
	for _, n := range names {
		n = strings.TrimSuffix(strings.TrimPrefix(n, "./"), "/")
		c := &checker{}
		switch {
		case n == "" || n == ".":
			n = "**"
		case strings.HasPrefix(n, "/"):
			return nil, invalid(strconv.Quote(clip(n)) + " is not below the directory: leave the slash out")
		}
		if strings.Contains(n, "*") {
			if c.glob("path", n); c.err() != nil {
				return nil, c.err()
			}
		}
		globs = append(globs, newGlob(n), newGlob(n+"/**"))
	}
	return func(path string) bool {
		return slices.ContainsFunc(globs, func(g *glob) bool { return g.match(path, false) })
	}, nil
}
