package guest

// Copyable reports whether a state from which sandboxes of several users start may contain a
// preloaded worker of a language. Each copy must produce different random values. Node's cannot:
// OpenSSL seeds its generator at the start, and Node has no way to reseed it. Its keys, including
// those of TLS connections, would be the same in each copy.
func Copyable(language string) bool { return language == "python" }
