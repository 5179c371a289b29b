package changeset

// Watched calls step before each step of an Apply, which does without
// exchanging files if it is apart.
func Watched(o ApplyOptions, step func(string), apart bool) ApplyOptions {
	o.step, o.apart = step, apart
	return o
}

// RunsFile reports whether a regular file is flagged as one that runs by itself. It
// compares no trees.
func RunsFile(name string) bool { return runsByItself(name, &Entry{Type: Regular}) }
