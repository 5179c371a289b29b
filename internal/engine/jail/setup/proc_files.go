package setup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/ids"
)

// replacements returns files of /proc with the sandbox's sizes, for those in which the kernel shows
// the host's. They are constant: the present usage is in the files of the control group.
func (b *builder) replacements() (map[string]string, error) {
	if b.r.Own {
		return nil, nil // the kernel's are the sandbox's
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"meminfo": meminfo(b.r.Limits.MemoryBytes),
		"cpuinfo": firstProcessors(string(cpuinfo), b.r.CPUs),
		"stat":    firstProcessorStats(stat, b.r.CPUs),
		"swaps":   "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
		"cmdline": "\n",
		// The host's value would reveal which sandboxes are on the same host.
		"sys/kernel/random/boot_id": bootID(),
	}, nil
}

// bootID returns a random boot ID.
func bootID() string {
	id := ids.NewUUID()
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// meminfo returns the lines of /proc/meminfo from which programs compute how much memory to use.
func meminfo(limit int64) string {
	kib := limit >> 10
	var out strings.Builder
	for _, line := range []struct {
		name string
		kib  int64
	}{
		{"MemTotal", kib}, {"MemFree", kib}, {"MemAvailable", kib}, {"Buffers", 0}, {"Cached", 0}, {"SwapCached", 0}, {"Active", 0}, {"Inactive", 0},
		{"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0}, {"AnonPages", 0}, {"Mapped", 0}, {"Shmem", 0}, {"SReclaimable", 0}, {"Slab", 0},
		{"CommitLimit", kib}, {"Committed_AS", 0},
	} {
		fmt.Fprintf(&out, "%-15s %8d kB\n", line.name+":", line.kib)
	}
	return out.String()
}

// firstProcessors returns /proc/cpuinfo for the first processors.
func firstProcessors(text string, limit int) string {
	var out strings.Builder
	n := 0
	for section := range strings.SplitAfterSeq(text, "\n\n") {
		if strings.HasPrefix(section, "processor") {
			if n++; n > limit {
				continue
			}
		}
		out.WriteString(section)
	}
	return out.String()
}

// firstProcessorStats returns /proc/stat for the first processors without the host's counts,
// because the host's load reveals what other sandboxes do.
func firstProcessorStats(text []byte, limit int) string {
	var out strings.Builder
	for line := range bytes.Lines(text) {
		name, _, _ := strings.Cut(string(line), " ")
		switch name {
		case "cpu":
			out.WriteString("cpu  0 0 0 0 0 0 0 0 0 0\n")
			for i := range limit {
				fmt.Fprintf(&out, "cpu%d 0 0 0 0 0 0 0 0 0 0\n", i)
			}
		case "btime":
			out.Write(line)
		}
	}
	out.WriteString("ctxt 0\nprocesses 0\nprocs_running 1\nprocs_blocked 0\n")
	return out.String()
}

// processors creates the files by which C libraries count processors.
func (b *builder) processors(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list := "0"
	if b.r.CPUs > 1 {
		list = fmt.Sprintf("0-%d", b.r.CPUs-1)
	}
	for _, name := range []string{"online", "possible", "present"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(list+"\n"), 0o444); err != nil {
			return err
		}
	}
	return nil
}
