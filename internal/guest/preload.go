package guest

// Copyable tells whether a loaded worker of a language may be part of a state
// that several sandboxes go on from, of several users: whatever it then draws at
// random must be another thing in each. Node's cannot. OpenSSL's generator has
// its seed from the start, and nothing that Node offers gives it another: keys
// that it makes, and those of its TLS connections, were the same in each copy.
func Copyable(language string) bool { return language == "python" }
