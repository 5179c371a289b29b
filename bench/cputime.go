package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// meter measures the processor time of a server and its sandboxes. The server does not wait for a
// sandbox's processes, so their time is read before they end.
type meter struct {
	srv    *server
	before time.Duration

	mu        sync.Mutex
	sandboxes time.Duration
}

// newMeter starts to measure.
func newMeter(srv *server) (*meter, error) {
	before, err := processTime(srv.cmd.Process.Pid)
	return &meter{srv: srv, before: before}, err
}

// sandbox adds the time that a sandbox has used so far.
func (m *meter) sandbox(id string) error {
	p, err := processesOf(m.srv.state, id)
	if err != nil {
		return err
	}
	_, used := threadsAndTime(p.all())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sandboxes += used
	return nil
}

// spent returns the time since newMeter: that of the server and its children, and of the sandboxes
// that were added.
func (m *meter) spent() (time.Duration, error) {
	now, err := processTime(m.srv.cmd.Process.Pid)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sandboxes + now - m.before, err
}

// tick is the unit of /proc/PID/stat on every architecture that the product is built for.
const tick = time.Second / 100

// processTime returns the processor time of a process and of its children that have ended and were
// waited for.
func processTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseProcessTime(string(data))
}

// parseProcessTime reads the processor time from a line of /proc/PID/stat.
func parseProcessTime(stat string) (time.Duration, error) {
	// The name may contain spaces and parentheses. It ends with the last parenthesis.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const first, count = 11, 4 // user and system time, of the process and of its children
	if len(fields) < first+count {
		return 0, fmt.Errorf("a line of /proc/PID/stat cannot be parsed: %q", stat)
	}
	var sum int64
	for _, field := range fields[first : first+count] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a line of /proc/PID/stat cannot be parsed: %q", stat)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
