package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
)

// replacingPrefix is the prefix of the directories of sandboxes that are about to replace another
// one, and of replaced sandboxes that are being removed. No ID of a sandbox begins with it. The name
// continues with that of the sandbox and with the process that created the directory.
const replacingPrefix = "replacing-"

// Replace implements engine.Checkpointer.
func (e *Engine) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	old, err := e.running(spec.ID)
	if err != nil {
		return err
	}
	var from *state
	if dir != "" {
		if from, err = e.openState(dir, spec); err != nil {
			return err
		}
		defer from.close()
	}
	next, err := e.newReplacement(spec)
	if err != nil {
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	// The old machine stands still, so that the two do not do the same work twice. It continues when
	// this connection is closed, also if this process is killed.
	stopped, err := old.order(ctx, keeper.Order{Stop: true})
	if err == nil {
		defer stopped.Close()
		if err = next.make(ctx, spec, from); err == nil {
			err = unix.Renameat2(unix.AT_FDCWD, next.dir, unix.AT_FDCWD, old.dir, unix.RENAME_EXCHANGE)
		}
	}
	if err != nil {
		return errors.Join(e.sandboxes.Explain(ctx, spec.ID, err), next.Destroy())
	}
	e.sandboxes.Put(spec.ID, newInstance(e, next.rec, old.dir))
	replaced := newInstance(e, old.rec, next.dir)
	if err := replaced.Destroy(); err != nil {
		e.log.Error("end a replaced sandbox", "sandbox", spec.ID, "err", err)
	}
	return nil
}

// newReplacement makes the directory of a sandbox that replaces another one.
func (e *Engine) newReplacement(spec engine.Spec) (*instance, error) {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	name := "r" + strings.ToLower(rand.Text()[:19])
	dir := filepath.Join(e.dir, fmt.Sprintf("%s%s-%d-%d", replacingPrefix, name, self.PID, self.Start))
	b := newInstance(e, record{ID: spec.ID, Name: name, Created: time.Now(), Limits: spec.Limits}, dir)
	return b, os.Mkdir(dir, 0o700)
}

// removeReplaced removes what an interrupted replacement has left: a sandbox that was to replace
// another one, or the replaced one.
func (e *Engine) removeReplaced() {
	dirs, err := filepath.Glob(filepath.Join(e.dir, replacingPrefix+"*"))
	if err != nil {
		return // only an invalid pattern
	}
	for _, dir := range dirs {
		var name string
		var creator process.Process
		parts := strings.Split(strings.TrimPrefix(filepath.Base(dir), replacingPrefix), "-")
		if len(parts) == 3 {
			name = parts[0]
			if _, err := fmt.Sscan(parts[1]+" "+parts[2], &creator.PID, &creator.Start); err != nil {
				continue
			}
		}
		if name == "" || creator.Alive() {
			continue
		}
		rec, err := readRecord(dir)
		if sandboxdir.Unreadable(err) {
			e.log.Warn("cannot inspect what a replacement has left", "err", err)
			continue
		}
		if err != nil {
			rec = record{ID: name, Name: name} // it was interrupted before it wrote a record
		}
		if err := newInstance(e, rec, dir).Destroy(); err != nil {
			e.log.Error("cannot remove what a replacement has left", "path", dir, "err", err)
		}
	}
}
