package observe

import (
	"io"
	"net/http"
	"sync/atomic"
)

// detachedCommand is a command that continues when its client leaves, as processes of the process
// service do. Its output is still recorded then, and its end still gets an entry.
type detachedCommand struct {
	cmd        *command
	started    atomic.Bool // the answer has begun
	handedOver atomic.Bool // the client has left, and the output is read here
	atEnd      func()
}

// Lasts reports whether the command continues when the client leaves.
func (v *Visit) Lasts() bool { return v != nil && v.detached != nil }

// Began reports whether the answer has begun. From then on the command continues when the client
// leaves. It may be called if Lasts is true.
func (v *Visit) Began() bool { return v.detached.started.Load() }

// AtEnd sets a function that is called when the answer has been read to its end, possibly long
// after Done. It must be called before the request is forwarded, and only if Lasts is true.
func (v *Visit) AtEnd(do func()) { v.detached.atEnd = do }

func newDetachedCommand(cmd *command) *Visit {
	l := &detachedCommand{cmd: cmd, atEnd: func() {}}
	return &Visit{answer: l.answer, done: l.done, detached: l}
}

// answer observes the events of the command.
func (l *detachedCommand) answer(res *http.Response) error {
	err := l.cmd.answer(res)
	if _, watches := res.Body.(*observedBody); err == nil && watches {
		l.started.Store(true)
		res.Body = &detachedBody{ReadCloser: res.Body, of: l}
	}
	return err
}

// done is called at the end of the client's request.
func (l *detachedCommand) done() {
	if !l.handedOver.Load() {
		l.over()
	}
}

func (l *detachedCommand) over() {
	l.cmd.finish()
	l.atEnd()
}

// detachedBody is the answer about a detached command. If it is closed early, the rest is read in
// the background.
type detachedBody struct {
	io.ReadCloser
	of     *detachedCommand
	failed bool // a read has failed or reached the end
}

// Read implements io.Reader.
func (b *detachedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.failed = b.failed || err != nil
	return n, err
}

// Close implements io.Closer.
func (b *detachedBody) Close() error {
	if b.failed || b.of.handedOver.Swap(true) {
		return b.ReadCloser.Close()
	}
	go func() {
		// After an error nothing more can be read. The command's entry states that its end is
		// unknown.
		_, _ = io.Copy(io.Discard, b.ReadCloser)
		_ = b.ReadCloser.Close()
		b.of.over()
	}()
	return nil
}
