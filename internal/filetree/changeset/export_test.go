package changeset

// Watched calls step before each step of an Apply. If apart is set, the Apply does not exchange
// files.
func Watched(o ApplyOptions, step func(string), apart bool) ApplyOptions {
	o.step, o.noExchange = step, apart
	return o
}

// RunsFile reports whether a regular file is flagged because tools execute it. It compares no
// trees.
func RunsFile(name string) bool { return runsByItself(name, &Entry{Type: Regular}) }
