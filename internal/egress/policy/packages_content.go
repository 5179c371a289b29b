package policy

import (
	"slices"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

// Values of packages.content, from the loosest. An absent one is looser.
const (
	contentReport = "report"
	contentRefuse = "refuse"
)

var contentModes = []string{contentReport, contentRefuse}

// Inspects reports whether the document has settings about the content of packages.
func (p Packages) Inspects() bool { return p.Content != "" || len(p.Tolerated) > 0 }

// inspected combines the layers' settings about the content of packages.
type inspected struct {
	mode      string
	layer     string   // the uppermost one that has mode
	refusedBy []string // the layers that refuse
	tolerated []packageList
}

func (i *inspected) merge(l Layer) {
	d := l.Document.Packages
	if slices.Index(contentModes, d.Content) > slices.Index(contentModes, i.mode) {
		i.mode, i.layer = d.Content, l.Kind
	}
	if d.Content == contentRefuse {
		i.refusedBy = append(i.refusedBy, l.Kind)
	}
	if len(d.Tolerated) > 0 {
		i.tolerated = append(i.tolerated, packageList{l.Kind, d.Tolerated})
	}
}

func (i *inspected) into(p *Packages) {
	p.Content = i.mode
	for _, l := range i.tolerated {
		p.Tolerated = union(p.Tolerated, l.entries)
	}
}

// Content returns the rule for what packages contain, or nil if nothing is inspected.
func (p *Policy) Content(x *lockfile.Index) *packages.ContentRule {
	i := &p.installs.content
	if i.mode == "" {
		return nil
	}
	return &packages.ContentRule{Refuse: i.mode == contentRefuse, Layer: i.layer, Known: x.Names, Tolerated: func(a packages.Artifact) bool {
		return excepted(i.refusedBy, i.tolerated, func(l packageList) bool { return l.find(a, true) != "" })
	}}
}

// contentWarnings adds warnings about settings of the content that have no effect.
func (i *installs) contentWarnings(warnings *[]Warning) {
	c := &i.content
	warn := func(layer, field, text string) {
		*warnings = append(*warnings, Warning{Layer: layer, Field: field, Text: text})
	}
	switch {
	case c.mode == "":
	case len(i.cache) == 0:
		warn(c.layer, packages.RuleContent, "has no effect, because packages.cache lists no ecosystem")
	case slices.Contains(i.cache, string(packages.Apt)) || slices.Contains(i.cache, string(packages.OCI)):
		warn(c.layer, packages.RuleContent, "packages of apt and images are not inspected")
	}
	if c.mode != contentRefuse && len(c.tolerated) > 0 {
		warn(c.tolerated[0].layer, "packages.tolerated", "has no effect without packages.content: refuse")
	}
}

// content compares which findings are reported or refused.
func (w *widening) content(a, b *inspected) {
	switch {
	case a.mode == "":
	case b.mode == "":
		w.add("packages.content: %s was removed", a.mode)
	case a.mode == contentRefuse && b.mode != contentRefuse:
		w.add("packages.content: %s becomes %s", a.mode, b.mode)
	case a.mode == contentRefuse:
		w.exceptions("tolerated", a.tolerated, b.tolerated)
	}
}
