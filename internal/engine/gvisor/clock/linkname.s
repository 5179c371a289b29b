// An assembly file lets the package declare a function that another package
// holds (go:linkname).
