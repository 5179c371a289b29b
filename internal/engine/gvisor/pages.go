package gvisor

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// span is a range of this process's addresses.
type span struct{ start, end uintptr }

// programPages returns the parts of this program that are mapped read-only from its file: code and
// constants.
func programPages() []span {
	if linkedWithC {
		// The program's loader writes to some pages before it makes them read-only. If they were
		// unmapped, the content of the file would reappear.
		return nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil // a failure only costs a little memory
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	return readOnlySpans(string(maps), exe)
}

// readOnlySpans parses a file's read-only mappings in the text of /proc/PID/maps.
func readOnlySpans(maps, path string) []span {
	var spans []span
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[5] != path || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			continue
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil || end <= start {
			continue
		}
		spans = append(spans, span{uintptr(start), uintptr(end)})
	}
	return spans
}

// unmapTouched unmaps the program's pages that the start has touched. They stay in the page cache,
// and page faults map those again that the sandbox still needs. Most pages were needed only for the
// start, and would otherwise count as the sandbox's memory for its whole life.
func unmapTouched(spans []span) {
	for _, s := range spans {
		// An error changes nothing.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.start, s.end-s.start, unix.MADV_DONTNEED)
	}
}
