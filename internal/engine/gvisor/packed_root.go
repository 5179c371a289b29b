package gvisor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor/owners"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// The root of an image can be one EROFS file, which the sandbox's kernel reads itself. Such a sandbox
// has no file server: it starts sooner, and takes less memory. Everything that a sandbox shows
// besides its image comes from a file server, and what a policy hides is covered there, out of reach
// of the sandbox's kernel. So a sandbox with a workspace, mounts, volumes or hidden paths uses the
// image's directory instead.

// packedRoot returns the file that is the root of a sandbox, or "" if its root is a directory. The
// answer is the same for a saved state and for the sandbox from which it was saved, because none of
// these parts of a specification may differ between them.
func packedRoot(spec engine.Spec) string {
	packed := spec.Image.View().Whole()
	if packed == nil || spec.Workspace != "" || spec.TakesWorkspace || len(spec.Mounts)+len(spec.Volumes)+len(spec.Links)+len(spec.Hide)+len(spec.Absent) > 0 {
		return ""
	}
	return packed.File
}

// usePacked makes a file the root. The file has its owners itself, and the saved states of its
// sandboxes need no copies of host files, because the file never changes.
func (r *bootRequest) usePacked(file string) {
	r.Packed, r.StandIns, r.Owners = file, nil, owners.Plan{UID: r.Owners.UID, GID: r.Owners.GID}
}

// describePackedRoot adds the root to a specification. dir is the directory for the file with the
// sandbox's writes.
func describePackedRoot(spec *specs.Spec, file, dir string, size int64) {
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		"source": file, "type": "erofs", "overlay": "dir=" + dir, "options": fmt.Sprintf("size=%d", size),
	} {
		spec.Annotations[boot.RootfsPrefix+key] = value
	}
}

// writesDescriptor is the number under which the boot child passes the file with the sandbox's
// writes to the kernel process. gVisor opens such a file only where it starts a file server. Below
// this number are the guest's own descriptors, and the guest never sees this one.
const writesDescriptor = guestboot.ChannelFD + 2

// openWrites creates the file with the sandbox's writes. It has no name, so the host's kernel frees
// it with its last descriptor.
func openWrites(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "writes-")
	if err != nil {
		return nil, fmt.Errorf("file with the sandbox's writes: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeWrites makes the kernel process use the passed file for the writes to a packed root. Without
// the file, it does not start.
func takeWrites(f *flag.FlagSet, annotations map[string]string) error {
	if annotations[boot.RootfsPrefix+"type"] == "" {
		return nil
	}
	passFlag, storeFlag := f.Lookup("pass-fd"), f.Lookup("gofer-filestore-fds")
	if passFlag == nil || storeFlag == nil {
		return errors.New("gVisor has no flags for descriptors")
	}
	passed, known := passFlag.Value.(*sandboxsetup.FDMappings)
	stores, ok := storeFlag.Value.(*sandboxsetup.IntFlags)
	if !known || !ok {
		return fmt.Errorf("unexpected flags for descriptors: %T and %T", passFlag.Value, storeFlag.Value)
	}
	at := slices.IndexFunc(*passed, func(m boot.FDMapping) bool { return m.Guest == writesDescriptor })
	if at < 0 || len(*stores) > 0 {
		return fmt.Errorf("unexpected descriptors: %q passed, %q for writes", passed, stores)
	}
	host := (*passed)[at].Host
	if _, err := unix.FcntlInt(uintptr(host), unix.F_GETFD, 0); err != nil {
		return fmt.Errorf("file with the sandbox's writes: %w", err)
	}
	// See limitRoot: these flags also print their original text.
	passFlag.Value, storeFlag.Value = printedAs{passed, passed.String()}, printedAs{stores, stores.String()}
	*passed = slices.Delete(*passed, at, at+1)
	*stores = append(*stores, host)
	withoutFileServer.Store(true)
	return nil
}
