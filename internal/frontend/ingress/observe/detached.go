package observe

import (
	"io"
	"net/http"
	"sync/atomic"
)

// lasting is a command that continues when its caller leaves, as a process that was
// started by the process service does. Its output is still kept then, and its end is
// still noticed.
type lasting struct {
	cmd    *command
	began  atomic.Bool // its answer has
	handed atomic.Bool // its caller left, and what it prints is read here
	atEnd  func()
}

// Lasts reports whether the visited command continues when the caller leaves.
func (v *Visit) Lasts() bool { return v != nil && v.lasting != nil }

// Began reports whether the answer has begun, from when on the caller's leaving
// ends nothing. It may be called where Lasts is true.
func (v *Visit) Began() bool { return v.lasting.began.Load() }

// AtEnd sets what is called when the answer has been read to its end, which may
// be long after Done. It must be called before the request goes in, where Lasts
// is true.
func (v *Visit) AtEnd(do func()) { v.lasting.atEnd = do }

func newLasting(cmd *command) *Visit {
	l := &lasting{cmd: cmd, atEnd: func() {}}
	return &Visit{answer: l.answer, done: l.done, lasting: l}
}

// answer watches the events of the command.
func (l *lasting) answer(res *http.Response) error {
	err := l.cmd.answer(res)
	if _, watches := res.Body.(*watched); err == nil && watches {
		l.began.Store(true)
		res.Body = &lastingBody{ReadCloser: res.Body, of: l}
	}
	return err
}

// done is called when the caller's request is over.
func (l *lasting) done() {
	if !l.handed.Load() {
		l.over()
	}
}

func (l *lasting) over() {
	l.cmd.over()
	l.atEnd()
}

// lastingBody is the answer about a lasting command. Closing it before its end
// reads the rest in the background.
type lastingBody struct {
	io.ReadCloser
	of     *lasting
	failed bool // or at its end
}

// Read implements io.Reader.
func (b *lastingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.failed = b.failed || err != nil
	return n, err
}

// Close implements io.Closer.
func (b *lastingBody) Close() error {
	if b.failed || b.of.handed.Swap(true) {
		return b.ReadCloser.Close()
	}
	go func() {
		// An error is the end of what can be heard, and the command's entry
		// says that its own was not.
		_, _ = io.Copy(io.Discard, b.ReadCloser)
		_ = b.ReadCloser.Close()
		b.of.over()
	}()
	return nil
}
