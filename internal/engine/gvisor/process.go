package gvisor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/engine/linux/process"
)

// suffix returns the end of a file name that identifies a process.
func suffix(p process.Process) string { return fmt.Sprintf(".%d-%d", p.PID, p.Start) }

// cutSuffix splits a file name into the name and the process in its suffix. A name without a suffix
// yields a process that does not exist.
func cutSuffix(name string) (string, process.Process) {
	name, text, _ := strings.Cut(name, ".")
	pid, start, _ := strings.Cut(text, "-")
	var p process.Process
	p.PID, _ = strconv.Atoi(pid)
	p.Start, _ = strconv.ParseUint(start, 10, 64)
	return name, p
}
