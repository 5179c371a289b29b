package policy

import "github.com/crannog/crannog/internal/packages"

// scanners are the values of packages.scan.
var scanners = []string{"clamd"}

// Scans reports whether the document has settings about scans of packages.
func (p Packages) Scans() bool { return p.Scan != "" }

// scanned combines the layers' settings about scans. There are no exceptions: a finding names a
// signature, which the administrator of the scanner can except there.
type scanned struct {
	scanner string
	layer   string // the uppermost one that has it
}

func (s *scanned) merge(l Layer) {
	if s.scanner == "" && l.Document.Packages.Scan != "" {
		s.scanner, s.layer = l.Document.Packages.Scan, l.Kind
	}
}

// Scan returns the rule for scans of packages, or nil if nothing is scanned.
func (p *Policy) Scan() *packages.ScanRule {
	s := &p.installs.scan
	if s.scanner == "" {
		return nil
	}
	return &packages.ScanRule{Layer: s.layer}
}

// scanWarnings adds warnings about settings of scans and ages that have no effect.
func (i *installs) scanWarnings(warnings *[]Warning) {
	if i.scan.scanner != "" && len(i.cache) == 0 {
		*warnings = append(*warnings, Warning{Layer: i.scan.layer, Field: packages.RuleScan, Text: "has no effect, because packages.cache lists no ecosystem"})
	}
	if a := &i.advisories; a.maxAge > 0 && a.level == packages.SeverityUnknown {
		*warnings = append(*warnings, Warning{Layer: a.maxAgeLayer, Field: "packages.advisories_max_age", Text: "has no effect without packages.advisories"})
	}
}

// scan compares which packages are scanned.
func (w *widening) scan(a, b *scanned) {
	if a.scanner != "" && b.scanner == "" {
		w.add("packages.scan: %s was removed", a.scanner)
	}
}
