package gvisor

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// fullDisk is a writer to a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// F24: a list of files is valid only if the kernel was certainly still writing when the list was
// made. Every checkpoint ends, also if the disk is full or the kernel hangs.
func TestF24ListIsMadeWhileKernelWrites(t *testing.T) {
	state := bytes.Repeat([]byte("state"), 50_000)
	for name, c := range map[string]struct {
		size int
		// endsFirst means that the state is complete before the list is.
		endsFirst, looked, certain bool
	}{
		"long":              {size: len(state), looked: true, certain: true},
		"none":              {},
		"short":             {size: listAfter - 1},
		"in the pipe":       {size: listAfter + listingPipe, endsFirst: true, looked: true},
		"not quite in it":   {size: listAfter + listingPipe + 1, looked: true, certain: true},
		"nothing after it":  {size: listAfter, endsFirst: true, looked: true},
		"little after that": {size: listAfter + 1, endsFirst: true, looked: true},
	} {
		var got bytes.Buffer
		looked, ended := false, make(chan struct{})
		end, written, err := copyWithPause(&got, func() {
			looked = true
			if c.endsFirst {
				<-ended
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = end.Write(state[:c.size])
		close(ended)
		if err = errors.Join(err, end.Close()); err != nil {
			t.Errorf("%s: write to the pipe: %v", name, err)
		}
		if certain, err := written(nil); err != nil || certain != c.certain || looked != c.looked || !bytes.Equal(got.Bytes(), state[:c.size]) {
			t.Errorf("%s: certain is %v, looked is %v, %d bytes were copied, %v", name, certain, looked, got.Len(), err)
		}
	}
	// If the disk is full, the writer gets an error with the reason. The pipe may hold a smaller state
	// completely before the disk is found full.
	end, written, err := copyWithPause(fullDisk{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end.Write(make([]byte, largePipe+2*listAfter)); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to the pipe with a full disk: got %v, want EPIPE", err)
	}
	if _, err := written(nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("written with a full disk: got %v, want ENOSPC", err)
	}
	// A hanging kernel keeps its end open, but does not block callers.
	end, written, err = copyWithPause(io.Discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	done := make(chan error, 1)
	go func() { _, err := written(errors.New("no answer")); done <- err }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("written returned no error for a failed checkpoint")
		}
	case <-hosttest.Late():
		t.Fatal("written waits for a kernel that does not answer")
	}
}

// F24: a state is bound only to the host's files in the root.
func TestF24HostPathOfOpenFile(t *testing.T) {
	spec := &engine.Spec{
		Image: engine.ViewOf("", "", []engine.Bind{{Source: "/usr", Target: "/usr"}, {Source: "/opt/p", Target: "/.crannog/programs/1"}, {Source: "/x/lib", Target: "/usr/lib"}}...),
		Hide:  []string{"/.crannog/programs/1/hidden"}, Absent: []string{"/usr/absent"},
	}
	for inside, want := range map[string]string{
		"/usr/bin/sh": "/usr/bin/sh", "/usr": "/usr", "/usrx/a": "", "/usr/lib/a": "/x/lib/a", "/usr/library": "/usr/library", "/.crannog/programs/1/a": "/opt/p/a",
		"/.crannog/programs/10/a": "", "/workspace/usr/bin/sh": "", "/etc/passwd": "", "/.crannog/programs/1/hidden": "", "/usr/absent/a": "",
	} {
		if got, _ := hostPath(spec, inside); got != want {
			t.Errorf("the path of %s on the host is %q, want %q", inside, got, want)
		}
	}
}
