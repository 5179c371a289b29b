package policy

// Matcher decides about paths of the sandbox's file tree. It is made once for
// many paths.
type Matcher struct{ deny, protect []glob }

// Matcher compiles the globs.
func (f Files) Matcher() Matcher {
	compile := func(patterns []string) []glob {
		out := make([]glob, len(patterns))
		for i, p := range patterns {
			out[i] = *newGlob(p)
		}
		return out
	}
	return Matcher{compile(f.Deny), compile(f.Protect)}
}

// Denied tells whether a path is not to come in. Case is not told apart: on
// file systems that do not either, .ENV is .env.
func (m Matcher) Denied(path string) bool { return matchAny(m.deny, path) }

// Protected tells whether a path may be read and not changed.
func (m Matcher) Protected(path string) bool { return matchAny(m.protect, path) }

func matchAny(globs []glob, path string) bool {
	for _, g := range globs {
		if g.match(path, true) {
			return true
		}
	}
	return false
}
