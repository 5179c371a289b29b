package gvisor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/engine/linux/process"
)

// suffix names a process at the end of a file's name.
func suffix(p process.Process) string { return fmt.Sprintf(".%d-%d", p.PID, p.Start) }

// cutSuffix parts a file's name from the process at its end. A name without one counts as that of a
// process that does not live.
func cutSuffix(name string) (string, process.Process) {
	name, text, _ := strings.Cut(name, ".")
	pid, start, _ := strings.Cut(text, "-")
	var p process.Process
	p.PID, _ = strconv.Atoi(pid)
	p.Start, _ = strconv.ParseUint(start, 10, 64)
	return name, p
}
