package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// packageCache is the process's side of the package cache. The process can read the stored files
// but not change them. It sends what it has fetched to a controller, which compares it with its
// digest and stores it.
type packageCache struct {
	*store.Reader
	dir    *os.File // of the cache, on the disk on which fetched files are too
	create func() (*os.File, error)
	cache  *pullthrough.Cache
}

// openPackages opens the directory of the package cache, for a new gateway process. dir is the
// process's own directory, which lies in the same state directory.
func openPackages(dir *os.File) (*os.File, error) {
	state := filepath.Dir(dir.Name())
	if err := store.Prepare(state); err != nil {
		return nil, err
	}
	return store.OpenDir(state)
}

// Room implements pullthrough.Roomy.
func (p *packageCache) Room() (int64, error) {
	raw, err := p.dir.SyscallConn()
	if err != nil {
		return 0, err
	}
	var s unix.Statfs_t
	controlErr := raw.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &s) })
	return int64(s.Bavail) * s.Bsize, errors.Join(controlErr, err)
}

func openPackageCache(dir *os.File, create func() (*os.File, error)) *packageCache {
	p := &packageCache{Reader: store.NewReader(dir), dir: dir, create: create}
	p.cache = pullthrough.New(p, time.Now)
	return p
}

// sandboxKey is the context key of the sandbox whose request stores a package.
type sandboxKey struct{}

// of returns the cache for one sandbox's requests.
func (p *packageCache) of(b *attachedSandbox) func(ctx context.Context, r pullthrough.Request) (pullthrough.Answer, error) {
	if p == nil {
		return nil
	}
	return func(ctx context.Context, r pullthrough.Request) (pullthrough.Answer, error) {
		return p.cache.Serve(context.WithValue(ctx, sandboxKey{}, b), r)
	}
}

// Create implements pullthrough.Storage.
func (p *packageCache) Create() (*os.File, error) { return p.create() }

// Keep implements pullthrough.Storage. Without a controller nothing is stored.
func (p *packageCache) Keep(ctx context.Context, e store.Entry, content *os.File) error {
	b, ok := ctx.Value(sandboxKey{}).(*attachedSandbox)
	if !ok {
		return errors.New("the request to store a package has no sandbox")
	}
	owner, _ := b.owner()
	if owner == nil {
		return errGone
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout+time.Duration(e.Size/keepRate)*time.Second)
	defer cancel()
	return owner.call(ctx, callKeep, keepBody{Sandbox: b.id, Entry: e}, nil, content)
}

// A controller may take keepTimeout to store a package, and a second more for each keepRate bytes.
const (
	keepTimeout = 2 * time.Minute
	keepRate    = 20 << 20
)

// keep stores a package that the process has fetched.
func (c *Client) keep(body json.RawMessage, files []*os.File) error {
	var req keepBody
	if err := strict(body, &req); err != nil {
		return badMessage(err)
	}
	if !c.controls(req.Sandbox) || c.packages == nil || len(files) != 1 {
		return fault.New(fault.Invalid, "causeway_protocol", "this controller stores no package for that sandbox")
	}
	if err := regular(files[0], req.Entry.Size); err != nil {
		return err
	}
	if err := c.packages.Put(req.Entry, io.NewSectionReader(files[0], 0, req.Entry.Size)); err != nil {
		return fmt.Errorf("store %s: %w", req.Entry.Key, err)
	}
	return nil
}
