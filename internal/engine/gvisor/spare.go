package gvisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// prestartedDir is the beginning of a spare kernel's directory, which no sandbox's ID
// can be. The kernel's name follows, and the process that makes it: it may be
// killed before it writes a record.
const prestartedDir = "spare-"

// Names of kernels begin with what they are for.
const (
	startingName = "k" // a sandbox that starts at once
	waitingName  = "w" // a sandbox that is not known yet
)

// kindOf names all that cannot change once a kernel is made.
func kindOf(spec engine.Spec) string {
	data, err := json.Marshal(spec.Bare())
	if err != nil {
		return "" // of no kind, so never spared
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ownName is a name that no other kernel ever has.
func ownName(spec engine.Spec) string {
	use := startingName
	if spec.Unhurried {
		use = waitingName
	}
	return use + strings.ToLower(rand.Text()[:19])
}

// kernelName returns the name of a new sandbox's kernel, which is the sandbox's, so that its
// group on the host can be recognized. While the removal of an earlier kernel of the
// sandbox is not finished, the name is another one. A name stands for the group, the
// control socket and the processes that are being removed.
func (e *Engine) kernelName(spec engine.Spec) string {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return ownName(spec)
	}
	spares := slices.DeleteFunc(entries, func(entry os.DirEntry) bool { return !strings.HasPrefix(entry.Name(), prestartedDir) })
	if held, err := e.names(spares, spec.ID); held || err != nil {
		return ownName(spec)
	}
	return spec.ID
}

// newPrestarted makes a kernel in a directory of its own.
func (e *Engine) newPrestarted(ctx context.Context, spec engine.Spec) (*kernel, error) {
	return e.newPrestartedOn(ctx, kernelKind{platform: running}, spec)
}

// newPrestartedOn is newPrestarted for a kind of kernel.
func (e *Engine) newPrestartedOn(ctx context.Context, kind kernelKind, spec engine.Spec) (*kernel, error) {
	name := ownName(spec)
	dir, err := e.prestartedDirOf(name)
	if err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.OrDefault()
	return e.newKernelOn(ctx, kind, spec, name, dir)
}

// prestartedDirOf is the directory of a spare kernel that this process makes.
func (e *Engine) prestartedDirOf(name string) (string, error) {
	self, err := process.Identify(os.Getpid())
	return filepath.Join(e.dir, prestartedDir+name+suffix(self)), err
}

// newPrestartedSlowly makes a spare kernel for which no caller waits.
func (e *Engine) newPrestartedSlowly(ctx context.Context, spec engine.Spec) (*kernel, error) {
	spec.Unhurried = true
	k, err := e.newPrestarted(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := k.yield(false); err != nil {
		k.discard()
		return nil, err
	}
	return k, nil
}

// removePrestarted removes kernels and replaced sandboxes whose process is dead.
func (e *Engine) removePrestarted() {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return // List reports the error
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), prestartedDir)
		if !ok {
			continue
		}
		dir := filepath.Join(e.dir, entry.Name())
		rec, err := readRecord(dir)
		if sandboxdir.Unreadable(err) {
			e.log.Warn("spare kernel not looked at", "err", err)
			continue
		}
		named := false
		if err != nil {
			// A kernel that is being made has no record for a moment.
			kernel, maker := cutSuffix(name)
			rec = record{ID: kernel, Kernel: kernel, Creator: maker}
			if named, err = e.names(entries, kernel); err != nil {
				e.log.Warn("spare kernel not looked at", "err", err)
				continue
			}
		}
		if rec.Creator.Alive() {
			continue
		}
		if named {
			// This directory held an earlier instance of a sandbox that was put back. The kernel
			// that the sandbox has now came from here and has the directory's name, so it must not
			// be ended.
			err = sandboxdir.Remove(dir)
		} else {
			err = newInstance(e, rec, dir).destroy()
		}
		if err != nil {
			e.log.Error("spare kernel not removed", "kernel", rec.Kernel, "err", fmt.Errorf("%s: %w", dir, err))
		}
	}
}

// names reports whether the record in one of the directories names a kernel. A
// removal removes the record last.
func (e *Engine) names(entries []os.DirEntry, kernel string) (bool, error) {
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		rec, err := readRecord(filepath.Join(e.dir, entry.Name()))
		if sandboxdir.Unreadable(err) {
			return false, err
		}
		if err == nil && rec.Kernel == kernel {
			return true, nil
		}
	}
	return false, nil
}
