package gvisor

import (
	"io"
	"os"
)

// pipe is a pipe between the server and the sandbox, or between the server and the child that
// creates the sandbox's kernel.
type pipe struct{ read, write *os.File }

// send writes a stream and closes the pipe. It ignores errors: if the reader is gone, the code that
// waits for the answer notices.
func (p *pipe) send(stream io.Reader) {
	_, _ = io.Copy(p.write, stream)
	p.write.Close()
}

// close closes the open ends.
func (p *pipe) close() {
	for _, f := range []*os.File{p.read, p.write} {
		if f != nil {
			f.Close()
		}
	}
}

// pipes holds the streams of a new kernel. All descriptors that a sandbox's kernel holds are pipes,
// because a socket does not survive the restore of a saved state.
type pipes struct {
	config  pipe // to the guest's standard input
	output  pipe // from the guest's standard output and error
	request pipe // to the child
	result  pipe // from the child
}

// newPipes opens all pipes.
func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, pipe := range p.all() {
		var err error
		if pipe.read, pipe.write, err = os.Pipe(); err != nil {
			p.closeAll()
			return nil, err
		}
	}
	return p, nil
}

// all lists the pipes.
func (p *pipes) all() []*pipe {
	return []*pipe{&p.config, &p.output, &p.request, &p.result}
}

// closeChildEnds closes the ends of the child and of the sandbox.
func (p *pipes) closeChildEnds() {
	for _, f := range []*os.File{p.config.read, p.output.write, p.request.read, p.result.write} {
		f.Close()
	}
}

// closeAll closes both ends of all pipes.
func (p *pipes) closeAll() {
	for _, pipe := range p.all() {
		pipe.close()
	}
}
