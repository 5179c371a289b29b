package kernelevents

import "sync"

// shared is the stream of this process. It exists while it has users: an idle process has no
// programs in the kernel.
var shared struct {
	mu     sync.Mutex
	stream *Stream
	users  int
}

// Acquire returns the stream of this process, which Release gives back.
func Acquire() (*Stream, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users == 0 {
		s, err := Open()
		if err != nil {
			return nil, err
		}
		shared.stream = s
	}
	shared.users++
	return shared.stream, nil
}

// Release gives back the stream of Acquire. The last user closes it.
func Release() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users--; shared.users == 0 {
		shared.stream.Close()
		shared.stream = nil
	}
}
