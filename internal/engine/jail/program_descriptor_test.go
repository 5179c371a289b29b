package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// The descriptor of the program must not be among those that the standard library uses in a child.
func TestDescriptorOfTheProgramIsNotOverwritten(t *testing.T) {
	const program = "/bin/true"
	// A file that is passed to the child has the number before that of the program, as when files
	// are opened at the same time by other goroutines.
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 700)
	if err != nil {
		t.Fatal(err)
	}
	passed := os.NewFile(uintptr(fd), "passed")
	defer passed.Close()
	run := func(file *os.File) error {
		cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		cmd.ExtraFiles = []*os.File{passed}
		return cmd.Run()
	}

	// The control: at the next number, the program is overwritten.
	opened, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	next, err := unix.FcntlInt(opened.Fd(), unix.F_DUPFD_CLOEXEC, fd+1)
	if err != nil {
		t.Fatal(err)
	}
	beside := os.NewFile(uintptr(next), "program")
	defer beside.Close()
	if next != fd+1 {
		t.Fatalf("control: the descriptor is %d", next)
	}
	if err := run(beside); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("control: a program beside the files of its child: %v", err)
	}

	above, err := openAbove(program, []*os.File{passed})
	if err != nil {
		t.Fatal(err)
	}
	defer above.Close()
	if err := run(above); err != nil {
		t.Errorf("a program above the files of its child: %v", err)
	}
}
