package prefault

const (
	sysRead      = 0
	sysClose     = 3
	sysMadvise   = 28
	sysOpen      = 2
	sysUmount    = 166
	sysExitGroup = 231
)

// open opens a file for reading. The path ends with a zero byte.
func open(path *byte) uintptr { return call(sysOpen, address(path), 0, 0) }
