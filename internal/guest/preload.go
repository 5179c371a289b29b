package guest

// Copyable reports whether a snapshot for several users may contain a preloaded worker of a
// language. Each copy of the worker must produce different random values. Copies of Node would not:
// OpenSSL seeds its generator at the start, and Node cannot reseed it. The keys of all copies,
// including those of TLS connections, would be the same.
func Copyable(language string) bool { return language == "python" }
