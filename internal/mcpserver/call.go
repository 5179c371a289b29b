package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/ticker"
)

// call is one tool call in progress.
type call struct {
	view *view
	req  *mcp.CallToolRequest
	text strings.Builder
	more []mcp.Content // follow the text
	// prompt, if set, is the result: it makes the client ask its user first.
	prompt *mcp.CallToolResult
}

// printf appends to the text of the result.
func (c *call) printf(format string, args ...any) { fmt.Fprintf(&c.text, format, args...) }

// sandbox returns the sandbox for the call.
func (c *call) sandbox(ctx context.Context, ref string) (*agentSandbox, error) {
	return c.view.resolve(ctx, c.req.Session, ref)
}

// result returns the result of a successful call.
func (c *call) result() *mcp.CallToolResult {
	if c.prompt != nil {
		return c.prompt
	}
	text := c.text.String()
	return &mcp.CallToolResult{Content: append([]mcp.Content{&mcp.TextContent{Text: text}}, c.more...)}
}

// image is a picture from the sandbox.
type image struct {
	mime string
	data []byte
}

func (c *call) show(images ...image) {
	for _, i := range images {
		c.more = append(c.more, &mcp.ImageContent{MIMEType: i.mime, Data: i.data})
	}
}

// metaError is the field with the code of an error in a result.
const metaError = "crannog/error"

// failed returns the result of a failed call, with advice.
func failed(err error) *mcp.CallToolResult {
	kind, code, text, hint := explain(err)
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", inert(text), code)
	if hint != "" {
		fmt.Fprintf(&b, "\nhint: %s", inert(hint))
	}
	short, _ := cut(b.String(), maxFailure)
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{metaError: map[string]any{"kind": kind, "code": code, "hint": inert(hint)}},
		Content: []mcp.Content{&mcp.TextContent{Text: short}}, IsError: true,
	}
}

// maxFailure is the maximum length of an error in characters. Clients cut longer ones.
const maxFailure = 8_000

// explain returns the text and code of an error for the caller.
func explain(err error) (kind, code, text, hint string) {
	if e, ok := errors.AsType[*crannog.Error](err); ok {
		kind, code, text, hint = e.Kind, e.Code, e.Message, e.Hint
		// A path identifies the file among several.
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			text = absPath(p.Path) + ": " + text
		}
		return kind, code, text, hint
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return string(e.Kind), fault.CodeOf(e), fault.PublicText(e), fault.HintOf(e)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return string(fault.Canceled), "canceled", "the call was cancelled", ""
	case errors.Is(err, context.DeadlineExceeded):
		return string(fault.Timeout), "timeout", "the call took too long", ""
	case errors.Is(err, fs.ErrInvalid):
		return string(fault.Invalid), "invalid_path", err.Error(), ""
	}
	// An error without a kind may contain private data, such as a path of the host.
	return string(fault.Internal), "internal", "an internal error of the server; its log has the cause", ""
}

// progressEvery is how often a waiting call sends progress. Clients commonly give up after a minute
// of silence.
const progressEvery = 5 * time.Second

// progress sends progress notifications until the returned function is called. It sends none to
// clients that did not request progress.
func (c *call) progress(ctx context.Context, message func() string) func() {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	start := time.Now()
	return ticker.Every(ctx, progressEvery, func(ctx context.Context) {
		// If the client cannot be reached, its call ends by itself.
		_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: time.Since(start).Seconds(), Message: message(),
		})
	})
}

// hasProgress reports whether the client asked for progress notifications.
func (c *call) hasProgress() bool { return c.req.Params.GetProgressToken() != nil }

func oneLine(s string) string {
	s = strings.Join(strings.Fields(inert(s)), " ")
	if short := prefix(s, 120); short != s {
		return short + "…"
	}
	return s
}
