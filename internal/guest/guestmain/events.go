package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// eventsPath is the file by which gVisor tells programs inside that their state was saved, or that
// they were restored. An open file reports the first such event after it was opened.
const eventsPath = "/proc/gvisor/checkpoint"

// restored is the file's content if programs were restored from a saved state.
const restored = "restore"

// events waits for events of the sandbox as a whole.
type events struct {
	path string
	file *os.File // nil where the kernel has no such events
}

// watchEvents begins to wait.
func watchEvents(path string) (*events, error) {
	e := &events{path: path}
	return e, e.again()
}

// again waits for the next event.
func (e *events) again() error {
	// Opened in this way, the runtime's poller waits for the file, so that no thread is blocked.
	file, err := os.Open(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for events: %w", err)
	}
	if e.file != nil {
		_ = e.file.Close() // it has reported its one event
	}
	e.file = file
	return nil
}

// next returns the next event, after starting to wait for the one after it.
func (e *events) next() (string, error) {
	var text [32]byte
	n, err := e.file.Read(text[:])
	if err != nil {
		return "", fmt.Errorf("wait for events: %w", err)
	}
	return strings.TrimSpace(string(text[:n])), e.again()
}
