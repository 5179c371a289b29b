package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

var _ pullthrough.Examiner = (*packageCache)(nil)

// examineTimeout is how long a controller may take to examine a package. A scanner has few threads,
// so files wait for each other.
const examineTimeout = 5 * time.Minute

// Examine implements pullthrough.Examiner. The process has no network of its own and no files, so
// its controller talks to the scanner.
func (p *packageCache) Examine(ctx context.Context, r examine.Request, file *os.File) (examine.Answer, error) {
	var out examine.Answer
	b, ok := ctx.Value(sandboxKey{}).(*attachedSandbox)
	if !ok {
		return out, errors.New("the request to examine a package has no sandbox")
	}
	owner, _ := b.owner()
	if owner == nil {
		return out, errGone
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	err := owner.call(ctx, callExamine, examineBody{Sandbox: b.id, Request: r}, &out, file)
	return out, err
}

// examine examines a package that the process has fetched.
func (c *Client) examine(ctx context.Context, body json.RawMessage, files []*os.File) (examine.Answer, error) {
	var req examineBody
	if err := strict(body, &req); err != nil {
		return examine.Answer{}, badMessage(err)
	}
	if !c.controls(req.Sandbox) || c.examiner == nil || len(files) != 1 {
		return examine.Answer{}, fault.New(fault.Invalid, "causeway_protocol", "this controller examines no package for that sandbox")
	}
	if err := regular(files[0], req.Request.Size); err != nil {
		return examine.Answer{}, err
	}
	return c.examiner.Examine(ctx, req.Request, files[0])
}

func (c *Client) controls(sandbox string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.controlled[sandbox]
}

// regular returns an error unless a file of the process is a regular one of a size. Reading a file
// of another kind could block for ever, or have an effect.
func regular(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return fault.New(fault.Invalid, "package_file", "a package must be a regular file of its entry's size")
	}
	return nil
}
