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

// prestartedPrefix is the name prefix of a prestarted kernel's directory. No sandbox's ID can begin
// with it. The name continues with the kernel's name and the process that creates the kernel,
// because that process may be killed before it writes a record.
const prestartedPrefix = "spare-"

// Names of kernels begin with a letter for their purpose.
const (
	startingName = "k" // for a sandbox that starts at once
	waitingName  = "w" // prestarted, for a later sandbox
)

// kindOf returns a hash of all settings that cannot change once a kernel exists.
func kindOf(spec engine.Spec) string {
	data, err := json.Marshal(spec.Bare())
	if err != nil {
		return "" // kernels of this kind are never prestarted
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// uniqueName returns a name that no other kernel ever has.
func uniqueName(spec engine.Spec) string {
	purpose := startingName
	if spec.Unhurried {
		purpose = waitingName
	}
	return purpose + strings.ToLower(rand.Text()[:19])
}

// kernelName returns the name of a new sandbox's kernel. It is the sandbox's ID, so that its
// control group can be recognised on the host. While an earlier kernel with this name is being
// removed, it is a unique name instead, because the name identifies the group, the control socket
// and the processes to remove.
func (e *Engine) kernelName(spec engine.Spec) string {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return uniqueName(spec)
	}
	prestartedDirs := slices.DeleteFunc(entries, func(entry os.DirEntry) bool { return !strings.HasPrefix(entry.Name(), prestartedPrefix) })
	if used, err := e.recordNames(prestartedDirs, spec.ID); used || err != nil {
		return uniqueName(spec)
	}
	return spec.ID
}

// newPrestarted creates a kernel in the directory of a prestarted kernel.
func (e *Engine) newPrestarted(ctx context.Context, spec engine.Spec) (*kernel, error) {
	return e.newPrestartedOn(ctx, kernelKind{platform: systrapName}, spec)
}

// newPrestartedOn is newPrestarted for a kind of kernel.
func (e *Engine) newPrestartedOn(ctx context.Context, kind kernelKind, spec engine.Spec) (*kernel, error) {
	name := uniqueName(spec)
	dir, err := e.prestartedDirOf(name)
	if err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.OrDefault()
	return e.newKernelOn(ctx, kind, spec, name, dir)
}

// prestartedDirOf returns the directory of a prestarted kernel that this process creates.
func (e *Engine) prestartedDirOf(name string) (string, error) {
	self, err := process.Identify(os.Getpid())
	return filepath.Join(e.dir, prestartedPrefix+name+suffix(self)), err
}

// newPrestartedSlowly creates a prestarted kernel with low priority, because no caller waits for
// it.
func (e *Engine) newPrestartedSlowly(ctx context.Context, spec engine.Spec) (*kernel, error) {
	spec.Unhurried = true
	k, err := e.newPrestarted(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := k.setYield(false); err != nil {
		k.discard()
		return nil, err
	}
	return k, nil
}

// removePrestarted removes prestarted kernels and replaced sandboxes whose creator has ended.
func (e *Engine) removePrestarted() {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return // List reports the error
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), prestartedPrefix)
		if !ok {
			continue
		}
		dir := filepath.Join(e.dir, entry.Name())
		rec, err := readRecord(dir)
		if sandboxdir.Unreadable(err) {
			e.log.Warn("cannot inspect a prestarted kernel", "err", err)
			continue
		}
		nameUsed := false
		if err != nil {
			// A kernel that is being created has no record for a moment.
			kernel, creator := cutSuffix(name)
			rec = record{ID: kernel, Kernel: kernel, Creator: creator}
			if nameUsed, err = e.recordNames(entries, kernel); err != nil {
				e.log.Warn("cannot inspect a prestarted kernel", "err", err)
				continue
			}
		}
		if rec.Creator.Alive() {
			continue
		}
		if nameUsed {
			// This directory contains what is left of an earlier instance of a sandbox. The
			// sandbox's present kernel was created in a directory of this name and still has the
			// name, so it must not be killed.
			err = sandboxdir.Remove(dir)
		} else {
			err = newInstance(e, rec, dir).destroy()
		}
		if err != nil {
			e.log.Error("cannot remove a prestarted kernel", "kernel", rec.Kernel, "err", fmt.Errorf("%s: %w", dir, err))
		}
	}
}

// recordNames reports whether the record in one of the directories names a kernel. A removal
// deletes the record last.
func (e *Engine) recordNames(entries []os.DirEntry, kernel string) (bool, error) {
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
