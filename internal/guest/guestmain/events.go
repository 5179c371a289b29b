package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// eventsPath is the file in which gVisor reports to programs inside that their state was saved or
// restored. An open file reports the first such event after it was opened.
const eventsPath = "/proc/gvisor/checkpoint"

// restoreEvent is the content of the file after the programs were restored.
const restoreEvent = "restore"

// events waits for save and restore events of the sandbox.
type events struct {
	path string
	file *os.File // nil where the kernel has no such events
}

// watchEvents starts waiting.
func watchEvents(path string) (*events, error) {
	e := &events{path: path}
	return e, e.reopen()
}

// reopen starts waiting for the next event.
func (e *events) reopen() error {
	// The runtime's poller waits for the file, so that no thread is blocked.
	file, err := os.Open(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for events: %w", err)
	}
	if e.file != nil {
		_ = e.file.Close() // each open file reports only one event
	}
	e.file = file
	return nil
}

// next returns the next event. It starts waiting for the following event first.
func (e *events) next() (string, error) {
	var text [32]byte
	n, err := e.file.Read(text[:])
	if err != nil {
		return "", fmt.Errorf("wait for events: %w", err)
	}
	return strings.TrimSpace(string(text[:n])), e.reopen()
}
