// An assembly file lets the package declare variables that another package
// holds (go:linkname).
