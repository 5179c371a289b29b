package guest

// Copyable reports whether a loaded worker of a language may be part of a state from which
// sandboxes of several users start. Each copy must then draw different random values. Node's
// cannot: OpenSSL's generator is seeded at the start, and nothing in Node changes the seed. Its
// keys, and those of its TLS connections, would be the same in each copy.
func Copyable(language string) bool { return language == "python" }
