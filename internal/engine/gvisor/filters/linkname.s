// This empty assembly file allows the package to refer to variables of other packages (go:linkname).
