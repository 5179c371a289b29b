package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A browser that ends more often than maxEnds times within endsWithin is not started again: it would
// crash forever, and each time the cause would be lost.
const (
	maxEnds    = 5
	endsWithin = 10 * time.Minute
)

// startTimeout is how long Chromium may take until it serves its DevTools port.
const startTimeout = time.Minute

// listening begins the line in which Chromium prints its DevTools address.
const listening = "DevTools listening on "

// endpoint is where a running Chromium serves its DevTools protocol.
type endpoint struct {
	host string // such as 127.0.0.1:41231
	path string // of the browser target
}

// End is how and when a browser ended.
type End struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// Status is what the program reports about the browser.
type Status struct {
	Running bool  `json:"running"`
	Starts  int   `json:"starts"`
	Ends    []End `json:"ends"` // the last ones, the oldest first
}

// supervisor keeps one browser running.
type supervisor struct {
	args    []string
	profile string
	stderr  io.Writer
	now     func() time.Time

	mu      sync.Mutex
	current *endpoint
	changed chan struct{} // closed and replaced when current changes
	starts  int
	ends    []End
}

func newSupervisor(args []string, profile string, stderr io.Writer) *supervisor {
	return &supervisor{args: args, profile: profile, stderr: stderr, now: time.Now, changed: make(chan struct{})}
}

// keepRunning starts the browser, and again each time that it ends. It returns nil when the context
// ends, and an error when the browser has ended too often.
func (s *supervisor) keepRunning(ctx context.Context) error {
	for {
		reason := s.runOnce(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was requested, so how the browser ended does not matter
		}
		recent := s.record(reason)
		_, _ = fmt.Fprintf(s.stderr, "crannog-guest browser: the browser has ended: %s\n", reason)
		if recent > maxEnds {
			return fmt.Errorf("the browser has ended %d times within %s and is not started again; the last time: %s", recent, endsWithin, reason)
		}
	}
}

// record notes an end, and returns how many there were recently.
func (s *supervisor) record(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	kept := s.ends[:0]
	for _, e := range s.ends {
		if now.Sub(e.At) < endsWithin {
			kept = append(kept, e)
		}
	}
	s.ends = append(kept, End{now.UTC(), reason})
	return len(s.ends)
}

// runOnce starts the browser and waits for its end. It returns the reason of the end.
func (s *supervisor) runOnce(ctx context.Context) (reason string) {
	// A killed browser leaves these links, and refuses a profile that another process seems to use.
	for _, name := range []string{"SingletonLock", "SingletonCookie", "SingletonSocket"} {
		if err := os.Remove(s.profile + "/" + name); err != nil && !os.IsNotExist(err) {
			return err.Error()
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, s.args[0], s.arguments()...)
	// All processes of the browser are in one group, so that none of a crashed one remains.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The messages go through a pipe that is not the command's: Wait returns when the browser itself
	// has ended, even if a process outside of the group, such as a crash handler, has the pipe open.
	read, write, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	cmd.Stderr, cmd.Stdout = write, write
	err = cmd.Start()
	_ = write.Close() // the browser has its own
	if err != nil {
		_ = read.Close()
		return err.Error()
	}
	late := time.AfterFunc(startTimeout, func() { cancel(fmt.Errorf("no DevTools port within %s", startTimeout)) })
	ended := make(chan struct{})
	go func() {
		// It ends with the last process that has the pipe open. The next start does not wait for it.
		defer read.Close()
		s.watch(read, func(e endpoint) {
			if late.Stop() {
				s.setUnless(ended, e)
			}
		})
	}()
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if no process of the group remains
	close(ended)
	s.set(nil)
	late.Stop()
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause.Error()
	case err != nil:
		return err.Error() // such as "signal: killed"
	}
	return "it exited by itself"
}

// arguments returns the browser's arguments. From the second start on, the first one has the reason
// of the previous end. Chromium ignores it, and the audit log has the arguments of each program, so
// that the restart is recorded with its reason by the sandbox's kernel.
func (s *supervisor) arguments() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	var args []string
	if n := len(s.ends); n > 0 {
		args = append(args, fmt.Sprintf("--crannog-restart=start %d, because the browser ended: %s", s.starts, s.ends[n-1].Reason))
	}
	args = append(args, "--remote-debugging-port=0", "--user-data-dir="+s.profile)
	return append(args, s.args[1:]...)
}

// watch copies the browser's messages and finds its DevTools address in them.
func (s *supervisor) watch(r io.Reader, found func(endpoint)) {
	lines := bufio.NewReaderSize(r, 16<<10)
	for {
		line, _, err := lines.ReadLine()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(s.stderr, "%s\n", line)
		if address, ok := strings.CutPrefix(string(line), listening); ok {
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				found(endpoint{u.Host, u.Path})
			}
		}
	}
}

// set changes where the browser is; nil means that none runs.
func (s *supervisor) set(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(e)
}

// change is set for callers that hold mu.
func (s *supervisor) change(e *endpoint) {
	s.current = e
	close(s.changed)
	s.changed = make(chan struct{})
}

// setUnless changes where the browser is, unless it has ended by now. The end comes before the
// next call of set.
func (s *supervisor) setUnless(ended <-chan struct{}, e endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ended:
	default:
		s.change(&e)
	}
}

// wait returns where the browser is, as soon as one runs that is not the old one.
func (s *supervisor) wait(ctx context.Context, old endpoint) (endpoint, error) {
	for {
		s.mu.Lock()
		current, changed := s.current, s.changed
		s.mu.Unlock()
		if current != nil && *current != old {
			return *current, nil
		}
		select {
		case <-ctx.Done():
			return endpoint{}, ctx.Err()
		case <-changed:
		}
	}
}

// status returns what is known about the browser.
func (s *supervisor) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Running: s.current != nil, Starts: s.starts, Ends: append([]End{}, s.ends...)}
}
