package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	_ "unsafe" // for go:linkname

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/crannog/crannog/internal/engine/gvisor/owners"
)

// A sandbox's writes go to a file system of gVisor that can limit the number of files. gVisor
// passes only the size limit to the file system, so this file adds the number in the kernel process
// itself, after the process has read its arguments.

// inodesKey is the annotation that passes the limit of files to the kernel process.
const inodesKey = "dev.crannog.inodes"

// sharedInodes limits the files of each tmpfs that a sandbox has besides its root: one file for
// each page of 64 MiB, whatever the size of the tmpfs is.
const sharedInodes = 16384

// boundInodes adds the limit of files to a specification.
func boundInodes(spec *specs.Spec, limit int64) {
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	spec.Annotations[inodesKey] = strconv.FormatInt(limit, 10)
	for i := range spec.Mounts {
		if m := &spec.Mounts[i]; m.Type == "tmpfs" && !slices.Contains(m.Options, "ro") {
			m.Options = append(slices.Clone(m.Options), inodesOption(sharedInodes))
		}
	}
}

// inodesOption returns the tmpfs option for a limit of files.
func inodesOption(n int64) string { return fmt.Sprintf("nr_inodes=%d", n) }

// memoryOptions lists the tmpfs options that gVisor accepts.
//
//go:linkname memoryOptions gvisor.dev/gvisor/runsc/boot.tmpfsAllowedData
var memoryOptions []string

// bootCommand starts gVisor's kernel with the limit of files and the plan of owners. If either
// cannot be set, the kernel does not start.
type bootCommand struct{ *sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	memoryOptions = append(memoryOptions, "nr_inodes")
	values, err := annotations(f)
	if err == nil {
		err = limitRoot(f, values[inodesKey])
	}
	if err == nil {
		err = takeWrites(f, values)
	}
	if err == nil {
		ownersPlan, err = owners.Parse(values[owners.Annotation])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel of a sandbox:", err)
		return subcommands.ExitFailure
	}
	return b.Boot.Execute(ctx, f, args...)
}

// annotations reads the annotations of the process's specification. It preserves the offset of the
// descriptor, because gVisor reads it again.
func annotations(f *flag.FlagSet) (map[string]string, error) {
	specFlag := f.Lookup("spec-fd")
	if specFlag == nil {
		return nil, errors.New("gVisor has no flag for the specification")
	}
	fd, err := strconv.Atoi(specFlag.Value.String())
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("specification: %w", err)
	}
	data := make([]byte, stat.Size)
	n, err := unix.Pread(fd, data, 0)
	if err != nil {
		return nil, fmt.Errorf("specification: %w", err)
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data[:n], &spec); err != nil {
		return nil, fmt.Errorf("specification: %w", err)
	}
	return spec.Annotations, nil
}

// limitRoot adds the limit to the settings of the file system that holds the sandbox's writes to
// its root.
func limitRoot(f *flag.FlagSet, text string) error {
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit < 1 {
		return fmt.Errorf("invalid limit of files in the specification: %q", text)
	}
	const name = "gofer-mount-confs"
	confFlag := f.Lookup(name)
	if confFlag == nil {
		return errors.New("gVisor has no flag for the root's settings")
	}
	confs, ok := confFlag.Value.(*specutils.GoferMountConfFlags)
	if !ok || len(*confs) == 0 || (*confs)[0].Size == "" {
		return fmt.Errorf("unexpected settings of the root: %q", confFlag.Value)
	}
	// Without root, gVisor starts itself again with the same flags, and cannot parse a flag that
	// includes the limit. So the flag still prints its original text.
	confFlag.Value = printedAs{confs, confs.String()}
	(*confs)[0].Size += "," + inodesOption(limit)
	return nil
}

// printedAs is a flag's value that prints the text from which it was parsed.
type printedAs struct {
	flag.Value
	text string
}

func (p printedAs) String() string { return p.text }
