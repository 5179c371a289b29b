package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// Files of a saved state. The memory's file contains the machine's memory and, after it, the
// sandbox's own disk.
const (
	descriptionPart = "machine.json"
	devicePart      = "device"
	memoryPart      = "memory"
)

// Parts implements engine.Checkpointer.
func (e *Engine) Parts() []engine.Part {
	return []engine.Part{
		{Name: descriptionPart, Kind: engine.PartSmall}, {Name: devicePart, Kind: engine.PartSmall}, {Name: memoryPart, Kind: engine.PartPages},
	}
}

// generation counts the changes of machines after which states of earlier versions cannot be
// restored.
const generation = "1"

// versionTime bounds how long QEMU takes to print its version.
const versionTime = 20 * time.Second

// Format implements engine.Checkpointer. QEMU's type microvm has no versions, so only the same
// version of QEMU reads a state. A kernel has chosen its code by the features of the processor.
func (e *Engine) Format() string { return e.format() }

// findFormat returns the format, as far as it is known.
func (e *Engine) findFormat() string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTime)
	defer cancel()
	version, err := e.qemu.Version(ctx)
	if err != nil {
		version = "unknown" // no machine can be saved or restored
	}
	processor := "emulated"
	if !e.o.Emulate {
		processor = processorSum()
	}
	return strings.Join([]string{Name, strings.ReplaceAll(version, " ", "-"), runtime.GOARCH, processor, generation}, "/")
}

// processorSum returns a hash of the model and the features of this host's processor.
func processorSum() string {
	data, _ := os.ReadFile("/proc/cpuinfo") // without it, all hosts are alike
	sum, seen := sha256.New(), map[string]bool{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); (name == "model name" || name == "flags") && !seen[name] {
			seen[name] = true
			_, _ = io.WriteString(sum, value) // a hash returns no error
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// Restores implements engine.Checkpointer.
func (e *Engine) Restores(format string) bool { return format == e.Format() }

// description lists the properties of a machine that are the same in each machine that continues
// from its state.
type description struct {
	MemoryBytes int64  `json:"memory_bytes"`
	Processors  int    `json:"processors"`
	Image       string `json:"image"`     // the image's digest
	RootDisk    string `json:"root_disk"` // the name of the file
	Own         bool   `json:"own"`       // there is a disk of its own
	OwnBytes    int64  `json:"own_bytes"` // its size, in a state
	Network     bool   `json:"network"`
}

// Bounds of a description.
const (
	maxDescription = 64 << 10
	maxProcessors  = 255
	maxSize        = 1 << 46
)

var diskName = pattern.New(`^[0-9a-f]{32}\.erofs$`)

// check refuses a description that no machine has.
func (d description) check() error {
	if d.MemoryBytes < minMemory || d.MemoryBytes > maxSize || d.MemoryBytes%unixPage != 0 || d.Processors < 1 || d.Processors > maxProcessors ||
		d.OwnBytes < 0 || d.OwnBytes > maxSize || d.OwnBytes%unixPage != 0 || d.Own != (d.OwnBytes > 0) || !diskName.MatchString(d.RootDisk) {
		return errors.New("the description of the machine is invalid")
	}
	return nil
}

// unixPage is the unit of memory and of disks.
const unixPage = 4096

// parseDescription reads the description of a state.
func parseDescription(r io.Reader) (d description, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDescription+1))
	if err != nil {
		return d, err
	}
	if len(data) > maxDescription {
		return d, errors.New("the description of the machine is too long")
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("description of the machine: %w", err)
	}
	return d, d.check()
}

// state is an open saved state.
type state struct {
	description
	memory, device *os.File
}

func (s *state) close() { _, _ = s.memory.Close(), s.device.Close() } // they were only read

// openState opens a state and checks that it fits a specification.
func (e *Engine) openState(dir string, spec engine.Spec) (_ *state, err error) {
	s := &state{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	f, err := os.Open(filepath.Join(dir, descriptionPart))
	if err != nil {
		return nil, fmt.Errorf("saved state: %w", err)
	}
	defer f.Close()
	if s.description, err = parseDescription(f); err != nil {
		return nil, fmt.Errorf("saved state: %w", err)
	}
	for name, file := range map[string]**os.File{memoryPart: &s.memory, devicePart: &s.device} {
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
			return nil, fmt.Errorf("saved state: %w", err)
		}
	}
	info, err := s.memory.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != s.MemoryBytes+s.OwnBytes {
		return nil, fmt.Errorf("saved state: the memory has %d bytes instead of %d", info.Size(), s.MemoryBytes+s.OwnBytes)
	}
	return s, e.fits(s.description, spec)
}

// fits refuses a specification with which a saved machine cannot continue.
func (e *Engine) fits(d description, spec engine.Spec) error {
	switch {
	case d.MemoryBytes != spec.Limits.MemoryBytes/mebibyte*mebibyte:
		return fault.Newf(fault.Unsupported, "memory_fixed", "a virtual machine continues with the %d MiB of memory that it was saved with", d.MemoryBytes/mebibyte).
			WithHint("leave the memory as it was, or start a new sandbox")
	case spec.Egress.Connected() && !d.Network:
		return fault.New(fault.Unsupported, "network_fixed", "a virtual machine that was saved without a network cannot get one").
			WithHint("start a new sandbox with a network")
	case d.Image != spec.Image.OCI.Digest:
		return fault.New(fault.Invalid, engine.CodeImage, "the saved state belongs to another image")
	}
	_, err := os.Stat(filepath.Join(e.imagesDir(), d.RootDisk))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Unsupported, "disk_missing", "this host does not have the disk of the image that the saved machine uses").
			WithHint("restore it on the host that saved it, while the image is there")
	}
	return err
}

const mebibyte = 1 << 20

// savedDisks returns the disks of a machine that continues from a state.
func (b *instance) savedDisks(from *state) (map[string]string, error) {
	b.rec.Machine = from.description
	disks := map[string]string{machine.RootDisk: filepath.Join(b.e.imagesDir(), from.RootDisk)}
	if !from.Own {
		return disks, nil
	}
	name := filepath.Join(b.dir, ownName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return nil, err
	}
	disks[machine.OwnDisk] = name
	return disks, errors.Join(f.Truncate(from.OwnBytes), keeper.CopyPages(f, 0, from.memory, from.MemoryBytes, from.OwnBytes), f.Close())
}
