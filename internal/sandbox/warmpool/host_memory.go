package warmpool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/crannog/crannog/internal/sandbox/demand"
)

// hostMemory reads the machine's memory.
func hostMemory() (demand.Memory, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return demand.Memory{}, err
	}
	// Kernels without pressure information have no such file, and kernels in which it is switched
	// off refuse to read it. In both cases the available memory alone decides.
	stalls, err := os.ReadFile("/proc/pressure/memory")
	if err != nil {
		stalls = nil
	}
	return parseMemory(info, stalls)
}

func parseMemory(info, stalls []byte) (demand.Memory, error) {
	var m demand.Memory
	for line := range bytes.Lines(info) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		var into *int64
		switch string(name) {
		case "MemTotal":
			into = &m.Total
		case "MemAvailable":
			into = &m.Available
		default:
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s in meminfo: %w", name, err)
		}
		*into = kib << 10
	}
	if m.Total == 0 || m.Available == 0 {
		return m, errors.New("meminfo does not state the total or available memory")
	}
	for line := range bytes.Lines(stalls) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != "some" {
			continue
		}
		text, ok := bytes.CutPrefix(fields[1], []byte("avg10="))
		if !ok {
			continue
		}
		var err error
		if m.Stalled, err = strconv.ParseFloat(string(text), 64); err != nil {
			return m, fmt.Errorf("memory pressure: %w", err)
		}
	}
	return m, nil
}
