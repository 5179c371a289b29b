package gvisor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pipe is one direction between the server and the child that boots a box.
type pipe struct{ read, write *os.File }

// send writes data and ends the stream. An error means that the reader is
// gone, which whoever waits for its answer sees.
func (p *pipe) send(data []byte) {
	_, _ = p.write.Write(data)
	p.write.Close()
}

// pipes are the four streams of a boot.
type pipes struct {
	config  pipe // to the guest's standard input
	output  pipe // from the guest's standard output and error
	request pipe // to the child
	result  pipe // from the child
	// channel is the first stream to the guest's relay: our end, and the box's.
	channel, boxChannel *os.File
}

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, one := range p.all() {
		var err error
		if one.read, one.write, err = os.Pipe(); err != nil {
			p.closeAll()
			return nil, err
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.closeAll()
		return nil, fmt.Errorf("first stream: %w", err)
	}
	p.channel, p.boxChannel = os.NewFile(uintptr(fds[0]), "channel"), os.NewFile(uintptr(fds[1]), "box-channel")
	return p, nil
}

func (p *pipes) all() []*pipe { return []*pipe{&p.config, &p.output, &p.request, &p.result} }

func (p *pipes) closeChildEnds() {
	for _, f := range []*os.File{p.config.read, p.output.write, p.request.read, p.result.write, p.boxChannel} {
		f.Close()
	}
}

func (p *pipes) closeAll() {
	for _, one := range p.all() {
		for _, f := range []*os.File{one.read, one.write} {
			if f != nil {
				f.Close()
			}
		}
	}
	for _, f := range []*os.File{p.channel, p.boxChannel} {
		if f != nil {
			f.Close()
		}
	}
}
