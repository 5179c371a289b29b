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

// What a sandbox writes lies in a file system of gVisor's that can bound the
// number of its files. gVisor hands it the size alone, so the number is added
// in the kernel process itself, after it has read its arguments.

// inodesKey is the annotation that passes the number to the kernel process.
const inodesKey = "dev.crannog.inodes"

// sharedInodes bounds the files of each file system in memory that a sandbox has
// besides its root: one for each page of 64 MiB, however large they are.
const sharedInodes = 16384

// boundInodes puts the limit into a specification.
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

func inodesOption(n int64) string { return fmt.Sprintf("nr_inodes=%d", n) }

// memoryOptions are the options of a file system in memory that gVisor lets
// through.
//
//go:linkname memoryOptions gvisor.dev/gvisor/runsc/boot.tmpfsAllowedData
var memoryOptions []string

// bootCommand starts gVisor's kernel with the limit in force and the user's files known. If either
// fails, nothing starts.
type bootCommand struct{ *sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	memoryOptions = append(memoryOptions, "nr_inodes")
	said, err := annotations(f)
	if err == nil {
		err = limitRoot(f, said[inodesKey])
	}
	if err == nil {
		owned, err = owners.Parse(said[owners.Annotation])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel of a box:", err)
		return subcommands.ExitFailure
	}
	return b.Boot.Execute(ctx, f, args...)
}

// annotations reads those of the specification that the process was given, and
// leaves the descriptor as it is: gVisor reads it again.
func annotations(f *flag.FlagSet) (map[string]string, error) {
	given := f.Lookup("spec-fd")
	if given == nil {
		return nil, errors.New("gVisor has no flag for the specification")
	}
	fd, err := strconv.Atoi(given.Value.String())
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

// limitRoot adds the limit to the settings of the file system that holds what
// the sandbox writes to its root.
func limitRoot(f *flag.FlagSet, text string) error {
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit < 1 {
		return fmt.Errorf("the specification's limit of files is %q", text)
	}
	const name = "gofer-mount-confs"
	given := f.Lookup(name)
	if given == nil {
		return errors.New("gVisor has no flag for the root's settings")
	}
	confs, ok := given.Value.(*specutils.GoferMountConfFlags)
	if !ok || len(*confs) == 0 || (*confs)[0].Size == "" {
		return fmt.Errorf("the root's settings are %q", given.Value)
	}
	// Without root gVisor starts itself once more with the same arguments,
	// which it would not understand with the limit in them.
	given.Value = printedAs{confs, confs.String()}
	(*confs)[0].Size += "," + inodesOption(limit)
	return nil
}

// printedAs is a flag's value that prints as it was read.
type printedAs struct {
	flag.Value
	text string
}

func (p printedAs) String() string { return p.text }
