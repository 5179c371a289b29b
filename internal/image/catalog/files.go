package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/durable"
)

// files stores each template in one file, which is replaced as a whole, so that each change is
// atomic.
type files struct{ dir string }

func openFiles(dir string) (*files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	return &files{dir}, nil
}

func (f *files) path(id string) string { return filepath.Join(f.dir, id+".json") }

// list returns all templates, sorted by name.
func (f *files) list() ([]Template, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	var all []Template
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(f.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("templates: %w", err)
		}
		var t Template
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, fmt.Errorf("templates: %s: %w", e.Name(), err)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Template) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// put writes a template. A template without versions is removed.
func (f *files) put(t Template) error {
	if len(t.Versions) == 0 {
		err := os.Remove(f.path(t.ID))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, durable.SyncDir(f.dir))
	}
	data, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	return durable.Replace(f.path(t.ID), data, durable.Options{Draft: ".template-*", Mode: 0o600, Sync: true})
}

// change calls do with all templates and writes the template that it returns. No other process
// changes a template at the same time.
func (f *files) change(ctx context.Context, do func(all []Template) (Template, error)) error {
	lock, err := os.OpenFile(filepath.Join(f.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("templates: %w", err)
	}
	defer lock.Close()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("templates: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-retry.C:
		}
	}
	all, err := f.list()
	if err != nil {
		return err
	}
	t, err := do(all)
	if err != nil {
		return err
	}
	return f.put(t)
}
