package prefault

// arguments holds the beginning of this process's command line. Package os does
// not have it yet when the first packages are initialised.
var arguments [256]byte

// Arguments returns the last element of the name by which this process was
// started, and its first argument.
func Arguments() (name, first string) {
	rest := arguments[:read("/proc/self/cmdline\x00", arguments[:])]
	name, rest = untilZero(rest)
	first, _ = untilZero(rest)
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:], first
		}
	}
	return name, first
}

func untilZero(text []byte) (string, []byte) {
	for i, b := range text {
		if b == 0 {
			return string(text[:i]), text[i+1:]
		}
	}
	return "", nil // cut off, or not there
}
