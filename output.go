package crannog

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Output runs the command and returns its standard output. If the error is an
// *ExitError and Stderr was not set, the error has the standard error output,
// shortened in the middle.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("crannog: Stdout is set already")
	}
	var stdout bytes.Buffer
	c.Stdout = &stdout
	stderr := &headTail{limit: 32 << 10}
	if c.Stderr == nil {
		c.Stderr = stderr
	}
	err := c.Run()
	if exit, ok := errors.AsType[*ExitError](err); ok && c.Stderr == stderr {
		exit.Stderr = stderr.bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("crannog: Stdout or Stderr is set already")
	}
	var both lockedBuffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run()
	return both.buf.Bytes(), err
}

// lockedBuffer may be written by two streams.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// StdinPipe returns a pipe to the command's input. Close it to end the input.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil || c.done != nil {
		return nil, errors.New("crannog: Stdin is set already, or the command was started")
	}
	r, w := io.Pipe()
	c.Stdin, c.feed.pipe = r, w
	c.pipes = append(c.pipes, r)
	return w, nil
}

// StdoutPipe returns a pipe from the command's output. It reaches its
// end when the command has ended. Read it to its end before calling Wait.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stdout) }

// StderrPipe is StdoutPipe for standard error.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stderr) }

func (c *Cmd) outputPipe(at *io.Writer) (io.ReadCloser, error) {
	if *at != nil || c.done != nil {
		return nil, errors.New("crannog: the output is set already, or the command was started")
	}
	r, w := io.Pipe()
	*at = w
	c.pipes = append(c.pipes, w)
	return r, nil
}

// closePipes closes this side of the pipes, so that no reader waits on them forever.
func (c *Cmd) closePipes(err error) {
	for _, p := range c.pipes {
		if w, ok := p.(*io.PipeWriter); ok && err != nil {
			// A PipeWriter's CloseWithError never fails.
			_ = w.CloseWithError(err)
			continue
		}
		// Close of a PipeReader or a PipeWriter never fails either.
		_ = p.Close()
	}
}

// headTail stores the first and the last bytes of an output, so that a noisy program cannot fill
// the memory.
type headTail struct {
	limit      int
	head, tail []byte
	skipped    bool
}

func (e *headTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := e.limit - len(e.head); room > 0 {
		k := min(room, len(p))
		e.head = append(e.head, p[:k]...)
		p = p[k:]
	}
	e.tail = append(e.tail, p...)
	if over := len(e.tail) - e.limit; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
		e.skipped = true
	}
	return n, nil
}

func (e *headTail) bytes() []byte {
	if !e.skipped {
		return append(e.head, e.tail...)
	}
	return append(append(e.head, "\n… left out …\n"...), e.tail...)
}
