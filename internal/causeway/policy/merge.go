package policy

import "github.com/crannog/crannog/internal/causeway"

// merge folds the layers into one document.
func (p *Policy) merge(warnings *[]Warning) error {
	p.merged = p.layers[0].Document
	return nil
}

func (l Layer) warnings() []Warning { return nil }

// Step is one step of a decision, for people.
type Step struct {
	Layer, Rule string
	Effect      causeway.Effect
	Text        string
}

func (p *Policy) guarded(host string) bool { return false }
