package events

import (
	"fmt"
	"os"
)

// End returns the number of the last event in a file that may be open for appending only, and
// whether an incomplete line of a writer that was killed follows it.
func End(file *os.File) (seq uint64, torn bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	var end [1]byte
	if _, err := f.ReadAt(end[:], info.Size()-1); err != nil {
		return 0, false, err
	}
	seq, _, err = Last(f)
	return seq, end[0] != '\n', err
}
