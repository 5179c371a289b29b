package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
)

// kernelKind holds the properties in which kernels of sandboxes with the same specification differ.
type kernelKind struct {
	platform string // the gVisor platform that programs run on
	// inherited lists the capabilities that the guest passed to the sandbox's user in the first
	// generation of states. That generation had no translation of owners.
	inherited []string
}

// kindToRestore returns the kind of kernel that can restore the state in a directory. The state
// decides, not the version that wrote it: a sandbox that was started before an upgrade keeps its
// kernel, and the version after the upgrade saves it.
func kindToRestore(platform, dir string) (kernelKind, error) {
	kind := kernelKind{platform: platform}
	f, err := os.Open(filepath.Join(dir, stateFiles[0]))
	if err != nil {
		return kind, fmt.Errorf("saved state: %w", err)
	}
	defer f.Close()
	metadata, err := statefile.MetadataUnsafe(f)
	if err != nil {
		return kind, fmt.Errorf("saved state: %w", err)
	}
	savedSpecs := map[string]*specs.Spec{}
	if text := metadata[boot.ContainerSpecsKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &savedSpecs); err != nil {
			return kind, fmt.Errorf("specification of the saved state: %w", err)
		}
	}
	for _, spec := range savedSpecs {
		if spec != nil && spec.Process != nil && spec.Process.Capabilities != nil {
			kind.inherited = spec.Process.Capabilities.Inheritable
		}
	}
	return kind, nil
}

// takePrestartedOf returns a prestarted kernel of a kind, or nil. All prestarted kernels are of the
// present generation.
func (e *Engine) takePrestartedOf(kind kernelKind, spec engine.Spec) *kernel {
	if len(kind.inherited) > 0 {
		return nil
	}
	return e.takePrestarted(spec)
}
