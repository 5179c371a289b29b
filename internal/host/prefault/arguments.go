package prefault

// commandLine holds the beginning of this process's command line. Package os has not read it yet
// when the first packages are initialised.
var commandLine [256]byte

// Arguments returns the arguments of this process, beginning with the name by which it was started,
// as far as they fit into a few hundred bytes.
func Arguments() (args []string) {
	unread := commandLine[:read("/proc/self/cmdline\x00", commandLine[:])]
	for len(unread) > 0 {
		end := 0
		for end < len(unread) && unread[end] != 0 {
			end++
		}
		if end == len(unread) {
			break // cut off
		}
		args, unread = append(args, string(unread[:end])), unread[end+1:]
	}
	return args
}

// Base returns the last element of the name by which this process was started.
func Base(args []string) string {
	if len(args) == 0 {
		return ""
	}
	name := args[0]
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:]
		}
	}
	return name
}
