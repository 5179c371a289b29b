// Package template owns the templates that are made from the host. The host template needs no
// download: it shows the host's programs and the few files of /etc that they need, and nothing else
// of the host.
package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// GuestTarget is the path of the guest's program in the sandbox.
const GuestTarget = "/.crannog/crannog-guest"

// CodeInterpreter is the name that E2B's code interpreter requests. A template of the machine may
// have it, and is then used instead of the programs of the host.
const CodeInterpreter = "code-interpreter-v1"

// Names of the host template.
var hostNames = []string{sandbox.BaseTemplate, CodeInterpreter}

// Known lists the templates that every host has, by ID and name.
func Known() [][2]string {
	var list [][2]string
	for _, name := range hostNames {
		list = append(list, [2]string{templateID(name), name})
	}
	return list
}

// deterministicName is the template in which WebAssembly modules get a fixed clock and fixed random
// numbers.
const deterministicName = "wasm-deterministic"

// RunnerTarget is the path in the sandbox of the program that runs modules.
const RunnerTarget = "/.crannog/crannog-wasm"

// JavaScriptTarget is the path in the sandbox of the module that runs JavaScript.
const JavaScriptTarget = "/.crannog/quickjs.wasm"

// Host is the set of templates that are made from this host. It implements sandbox.Templates.
type Host struct {
	dir      string
	guest    string
	runner   string
	quickjs  string
	more     []string
	revision revision

	mu      sync.Mutex
	image   *engine.Image
	modules *engine.Image
}

// WithRunner adds the templates for WebAssembly modules. runner is the host path of the program
// that runs modules; "" adds none. quickjs is the host path of the module that runs JavaScript.
func (h *Host) WithRunner(runner, quickjs string) *Host {
	h.runner, h.quickjs = runner, quickjs
	return h
}

// NewHost returns a Host that stores its files below dir. guest is the host path of the program
// that runs as PID 1 in a sandbox. more lists files and directories of /etc that are shown in
// addition to those without secrets.
func NewHost(dir, guest string, more ...string) *Host {
	h := &Host{dir: dir, guest: guest, more: more, revision: revision{root: "/", dir: dir}}
	// A separate guest program is named by its content and stays when another version is installed.
	// This program itself is replaced by an upgrade, so the revision has to include it.
	if self, err := os.Executable(); err == nil && self == guest {
		h.revision.self = self
	}
	return h
}

// Resolve implements sandbox.Templates.
func (h *Host) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	for _, name := range hostNames {
		if ref.Name != name && ref.Name != templateID(name) {
			continue
		}
		if ref.Tag != "" && ref.Tag != "default" {
			return sandbox.Template{}, sandbox.TagUnknown(ref)
		}
		image, err := h.Image()
		if err != nil {
			return sandbox.Template{}, err
		}
		programs, err := h.revision.digest()
		if err != nil {
			return sandbox.Template{}, fmt.Errorf("programs of the host: %w", err)
		}
		return sandbox.Template{ID: templateID(name), Name: name, Image: image, Revision: programs}, nil
	}
	return h.resolveModules(ref)
}

// templateID returns the 20 characters of a-z and 0-9 that permanently identify a template.
func templateID(name string) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	sum := sha256.Sum256([]byte("crannog template " + name))
	id := make([]byte, 20)
	for i := range id {
		id[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(id)
}

// Image returns the template's image. It is created once per server, and again only if the host's
// files have changed.
func (h *Host) Image() (engine.Image, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.image != nil {
		return *h.image, nil
	}
	plan, err := planHost("/", h.more...)
	if _, known := errors.AsType[*fault.Error](err); known {
		return engine.Image{}, err
	}
	if err != nil {
		return engine.Image{}, fmt.Errorf("host template: %w", err)
	}
	plan.binds = append(plan.binds, engine.Bind{Source: h.guest, Target: GuestTarget})
	plan.files[GuestTarget] = file{mode: 0o555}
	dir, err := h.materialize("host", plan)
	if err != nil {
		return engine.Image{}, fmt.Errorf("host template: %w", err)
	}
	image := engine.ViewOf(dir, GuestTarget, plan.binds...)
	h.image = &image
	return *h.image, nil
}

// materialize writes the plan's directory, named by its content. If another process does the same,
// the first rename succeeds, and both directories are equal.
func (h *Host) materialize(kind string, p *plan) (string, error) {
	final := filepath.Join(h.dir, kind+"-"+p.digest())
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(h.dir, ".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := p.write(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(final); statErr != nil {
			return "", err
		}
	}
	return final, nil
}

// shortDigest returns the first 16 hexadecimal digits of a digest.
func shortDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
