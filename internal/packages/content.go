package packages

// ContentRule is the setting of a policy for what packages contain. With a nil ContentRule, nothing
// is inspected.
type ContentRule struct {
	// Refuse is set if a package with findings is refused.
	Refuse bool
	Layer  string
	// Tolerated reports whether a package passes despite its findings. Nil tolerates none.
	Tolerated func(a Artifact) bool
	// Known returns the names of packages that the workspace uses. Nil knows none.
	Known func(e Ecosystem) []string
}

// RuleContent is the rule of refusals because of what a package contains.
const RuleContent = "packages.content"
