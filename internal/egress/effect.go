package egress

import "slices"

// Effects are all effects, from the weakest to the strictest.
var Effects = []Effect{Allow, Ask, Deny}

// Strictness returns the index of an effect in Effects. An unknown effect is as strict as Deny, so
// that a mistake denies.
func (e Effect) Strictness() int {
	if i := slices.Index(Effects, e); i >= 0 {
		return i
	}
	return len(Effects) - 1
}

// Stricter reports whether e is stricter than other.
func (e Effect) Stricter(other Effect) bool { return e.Strictness() > other.Strictness() }
