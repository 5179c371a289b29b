package mcpserver

import (
	"context"
	"errors"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

// tool describes a tool. Every hint is set, because some clients assume the worst for a missing
// one, and others the best.
type tool struct {
	name, title, text string
	// changes reports whether the tool changes anything, destroys whether it can destroy existing
	// data, repeats whether a second call has no further effect, and reaches whether it may contact
	// anything outside of the sandbox.
	changes, destroys, repeats, reaches bool
	// shape sets properties of the input that a struct's tags cannot express.
	shape func(properties map[string]*jsonschema.Schema)
}

// add adds a tool, unless the view is read-only and the tool changes something.
func add[In, Out any](w *view, t tool, handle func(context.Context, *call, In) (Out, error)) {
	if w.ReadOnly && t.changes {
		return
	}
	input, output := schemaOf[In](), schemaOf[Out]()
	if t.shape != nil {
		t.shape(input.Properties)
	}
	mcp.AddTool(w.srv, &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.text, InputSchema: input, OutputSchema: output,
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: !t.changes, DestructiveHint: &t.destroys,
			IdempotentHint: t.repeats || !t.changes, OpenWorldHint: &t.reaches,
		},
	}, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		defer w.tenant.enter()()
		c := &call{view: w, req: req}
		out, err := handle(ctx, c, in)
		if err != nil {
			w.report(ctx, t.name, err)
			return failed(err), nil, nil
		}
		if c.prompt != nil {
			return c.prompt, nil, nil
		}
		return c.result(), out, nil
	})
}

// report logs internal errors with their cause, which the result omits.
func (w *view) report(ctx context.Context, name string, err error) {
	if kind, _, _, _ := explain(err); kind == string(fault.Internal) {
		w.tenant.o.Log.ErrorContext(ctx, "tool failed", "tool", name, "err", err)
	}
}

// schemaOf returns the schema of a type.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic("mcpserver: " + err.Error()) // cannot fail for our types
	}
	return s
}

// notFound names the missing object in the error.
func notFound(err error, ref string) error {
	if !errors.Is(err, crannog.ErrNotFound) {
		return err
	}
	return fault.Newf(fault.NotFound, "sandbox_not_found", "Sandbox %q doesn't exist or you have no access", ref)
}

// oneOf restricts a string to some values.
func oneOf(s *jsonschema.Schema, values ...string) {
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
}

// inRange restricts a number.
func inRange(s *jsonschema.Schema, least, limit float64) { s.Minimum, s.Maximum = &least, &limit }

// defaultsTo sets the default value.
func defaultsTo(s *jsonschema.Schema, json string) { s.Default = []byte(json) }

// target is the input that all tools have.
type target struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"Sandbox to use, by name or ID. Leave it out for the default one."`
}
