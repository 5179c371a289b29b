// This empty assembly file allows the package to declare a function without a body (go:linkname).
