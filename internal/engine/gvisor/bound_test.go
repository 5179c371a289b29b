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

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// F24: a list of files is valid only if the kernel was certainly still writing when it was made.
// However a save ends, it ends.
func TestF24LookedAtWhileItWrites(t *testing.T) {
	state := bytes.Repeat([]byte("state"), 50_000)
	for name, c := range map[string]struct {
		size         int
		looked, sure bool
	}{
		"long": {len(state), true, true}, "none": {0, false, false}, "short": {enough - 1, false, false},
		"in the pipe": {enough + 1, true, false},
	} {
		var got bytes.Buffer
		looked := false
		end, written, err := halfway(&got, func() { looked = true })
		if err != nil {
			t.Fatal(err)
		}
		_, err = end.Write(state[:c.size])
		if err = errors.Join(err, end.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sure, err := written(nil); err != nil || sure != c.sure || looked != c.looked || !bytes.Equal(got.Bytes(), state[:c.size]) {
			t.Errorf("%s: sure %v, looked %v, %d bytes, %v", name, sure, looked, got.Len(), err)
		}
	}
	// If the disk is full, the writer gets an error with the reason.
	end, written, err := halfway(fullDisk{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := end.Write(state); !errors.Is(err, unix.EPIPE) {
		t.Errorf("a full disk: %v", err)
	}
	if _, err := written(nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	// A hanging kernel keeps its end open, but does not block callers.
	end, written, err = halfway(io.Discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	done := make(chan error, 1)
	go func() { _, err := written(errors.New("no answer")); done <- err }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a save that failed is no error")
		}
	case <-hosttest.Late():
		t.Fatal("it waits for a kernel that does not answer")
	}
}

// F24: a state is bound only to the host's files in the root.
func TestF24WhereAnOpenFileIsOnTheHost(t *testing.T) {
	spec := &engine.Spec{
		Image: engine.ViewOf("", "", []engine.Bind{{Source: "/usr", Target: "/usr"}, {Source: "/opt/p", Target: "/.crannog/programs/1"}, {Source: "/x/lib", Target: "/usr/lib"}}...),
		Hide:  []string{"/.crannog/programs/1/hidden"}, Absent: []string{"/usr/absent"},
	}
	for inside, want := range map[string]string{
		"/usr/bin/sh": "/usr/bin/sh", "/usr": "/usr", "/usrx/a": "", "/usr/lib/a": "/x/lib/a", "/usr/library": "/usr/library", "/.crannog/programs/1/a": "/opt/p/a",
		"/.crannog/programs/10/a": "", "/workspace/usr/bin/sh": "", "/etc/passwd": "", "/.crannog/programs/1/hidden": "", "/usr/absent/a": "",
	} {
		if got, _ := hostPath(spec, inside); got != want {
			t.Errorf("%s is %q and not %q", inside, got, want)
		}
	}
}
