package engine

// strength orders the boundaries. A higher number is a stronger boundary.
var strength = map[Boundary]int{NoBoundary: 1, SharedKernel: 2, WasmRuntime: 3, UserspaceKernel: 4, OwnKernel: 5}

// Known reports whether b is one of the boundaries.
func (b Boundary) Known() bool { return strength[b] > 0 }

// AtLeast reports whether b is at least as strong as least. An empty least means no minimum. An
// unknown boundary is weaker than every minimum, and an unknown minimum is never met: a misspelt
// policy must not start a sandbox behind a weak boundary.
func (b Boundary) AtLeast(least Boundary) bool {
	if least == "" {
		return true
	}
	return strength[least] > 0 && strength[b] >= strength[least]
}
