package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// console shares one terminal between the program in a sandbox and prompts about approval requests.
// While a prompt is open, the program's output is held back and it gets no input. Otherwise the
// program could draw over the prompt, and input for the program could be taken for the decision.
type console struct {
	tty    *os.File       // nil if there is no terminal
	text   io.Writer      // where prompts are written
	in     *inputSplitter // source of typed input
	shared bool           // the program's standard input is the terminal
	stdin  io.Reader

	// hold is locked while a prompt is open, and during each write of the program.
	hold sync.Mutex
}

// openConsole finds the terminal: standard input, or the process's controlling terminal. There may
// be none.
func (a approvalVerbs) openConsole() *console {
	if a.Stdin != nil && term.IsTerminal(int(a.Stdin.Fd())) {
		return newConsole(a.Stdin, a.Stderr, true, a.Stdin)
	}
	var stdin io.Reader
	if a.Stdin != nil {
		stdin = a.Stdin
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return &console{stdin: stdin} // no terminal, so no person to ask
	}
	return newConsole(tty, a.Stderr, false, stdin)
}

func newConsole(tty *os.File, text io.Writer, shared bool, stdin io.Reader) *console {
	c := &console{tty: tty, text: text, shared: shared, stdin: stdin, in: newInputSplitter(tty, shared)}
	if !isTerminal(text) {
		c.text = tty // a prompt that is written to a file would never be answered
	}
	if shared {
		c.stdin = c.in
	}
	return c
}

// program returns the standard streams for the program in the sandbox.
func (c *console) program(stdout, stderr io.Writer) (io.Reader, io.Writer, io.Writer) {
	return c.stdin, &heldWriter{c, stdout}, &heldWriter{c, stderr}
}

// heldWriter is a stream of the program. Its Write blocks while a prompt is open.
type heldWriter struct {
	c *console
	w io.Writer
}

func (h *heldWriter) Write(p []byte) (int, error) {
	h.c.hold.Lock()
	defer h.c.hold.Unlock()
	return h.w.Write(p)
}

// resetModes resets terminal modes that would hide or garble a prompt: another character set,
// invisible text, a hidden cursor.
const resetModes = "\x0f\x1b(B\x1b[0m\x1b[?25h\r\n"

// errNoAnswer is returned if the terminal is closed, or the person typed Ctrl-C or Ctrl-D.
var errNoAnswer = errors.New("there was no answer")

// ask shows lines and a prompt and returns the typed line. It does not change the terminal's mode,
// raw or not: the command's relay sets and restores the mode, and two owners would leave the
// terminal in the wrong mode.
func (c *console) ask(ctx context.Context, lines []string, prompt string) (string, error) {
	c.hold.Lock()
	defer c.hold.Unlock()
	defer c.in.begin()()
	// Input that was typed before the prompt appeared is not meant as its answer, so it is
	// discarded if the terminal can be flushed.
	_ = unix.IoctlSetInt(int(c.tty.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	var b bytes.Buffer
	b.WriteString(resetModes)
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	b.WriteString(prompt)
	if _, err := c.text.Write(b.Bytes()); err != nil {
		return "", err
	}
	answer, err := c.in.line(ctx, c.echoWriter())
	// The answer counts even if the newline after it cannot be written.
	_, _ = io.WriteString(c.text, "\r\n")
	return answer, err
}

// echoWriter is where typed characters are shown. It is nil if the terminal itself echoes them.
func (c *console) echoWriter() io.Writer {
	t, err := unix.IoctlGetTermios(int(c.tty.Fd()), unix.TCGETS)
	if err == nil && t.Lflag&unix.ECHO != 0 {
		return io.Discard
	}
	return c.text
}

// inputSplitter reads a terminal. It passes the input to the open prompt if there is one, else to
// the program.
type inputSplitter struct {
	src  io.Reader
	keep bool // the program reads the terminal too

	mu        sync.Mutex
	changed   *sync.Cond
	started   bool
	prompting bool // a prompt is open
	program   []byte
	answer    []byte
	err       error
}

// maxUnread bounds the unread input for a program, in bytes.
const maxUnread = 64 << 10

func newInputSplitter(src io.Reader, keep bool) *inputSplitter {
	in := &inputSplitter{src: src, keep: keep}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// start starts a goroutine that reads, at the first use. The caller holds in.mu.
func (in *inputSplitter) start() {
	if !in.started {
		in.started = true
		go in.readInput()
	}
}

func (in *inputSplitter) readInput() {
	buf := make([]byte, 4<<10)
	for {
		n, err := in.src.Read(buf)
		in.mu.Lock()
		switch {
		case in.prompting:
			in.answer = append(in.answer, buf[:n]...)
		case in.keep:
			in.program = append(in.program, buf[:n]...)
		}
		in.err = err
		in.changed.Broadcast()
		// A prompt must get its input even if the program reads none.
		for err == nil && len(in.program) > maxUnread && !in.prompting {
			in.changed.Wait()
		}
		in.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read reads the program's input.
func (in *inputSplitter) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.start()
	for len(in.program) == 0 {
		if in.err != nil {
			return 0, in.err
		}
		in.changed.Wait()
	}
	n := copy(p, in.program)
	in.program = in.program[n:]
	in.changed.Broadcast()
	return n, nil
}

// begin directs input to a prompt until the returned function is called.
func (in *inputSplitter) begin() func() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.start()
	in.prompting, in.answer = true, nil
	in.changed.Broadcast()
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.prompting = false
	}
}

// line returns the typed line. It echoes only printable letters, so that pasted text cannot control
// the terminal.
func (in *inputSplitter) line(ctx context.Context, echo io.Writer) (string, error) {
	defer context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.changed.Broadcast()
	})()
	const interrupt, end, backspace, erase = 3, 4, 8, 127 // ASCII
	const maxAnswer = 32                                  // characters
	var typed []byte
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		for len(in.answer) == 0 {
			switch {
			case ctx.Err() != nil:
				return "", context.Cause(ctx)
			case in.err != nil:
				return "", errNoAnswer
			}
			in.changed.Wait()
		}
		b := in.answer[0]
		in.answer = in.answer[1:]
		switch {
		case b == '\r' || b == '\n':
			return string(typed), nil
		case b == interrupt || b == end:
			return "", errNoAnswer
		case b == backspace || b == erase:
			if len(typed) > 0 {
				typed = typed[:len(typed)-1]
				_, _ = io.WriteString(echo, "\b \b")
			}
		case b >= ' ' && b < erase && len(typed) < maxAnswer:
			typed = append(typed, b)
			_, _ = echo.Write([]byte{b})
		}
	}
}
