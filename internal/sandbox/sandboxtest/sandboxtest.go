// Package sandboxtest provides tests of whole servers with sandboxes that have no boundary: the
// real guest and interpreter behind the fake engine, whose programs run directly on this host, and
// a template for them.
package sandboxtest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/sandbox"
)

// Guest starts a sandbox's services, by port, with the calling user as the sandbox's user. The
// returned function stops them.
func Guest(spec engine.Spec, home string, log *slog.Logger) (map[int]http.Handler, func(), error) {
	var cfg guest.Config
	if err := json.Unmarshal(spec.Boot.Config, &cfg); err != nil {
		return nil, nil, err
	}
	cfg.DefaultDir = ""
	user := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	g, err := guest.New(cfg, guest.Options{Users: identity.Fixed{user}})
	if err != nil {
		return nil, nil, err
	}
	interpreter := guestmain.NewInterpreter(g, nil, log)
	ports := map[int]http.Handler{guestboot.Port: g.Handler(), guestboot.InterpreterPort: interpreter}
	return ports, func() { interpreter.Close(); _ = g.Close() }, nil
}

// Template is the one template, "base".
type Template struct{}

const templateID = "aaaaaaaaaaaaaaaaaaaa"

// Resolve implements sandbox.Templates.
func (Template) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" && ref.Name != templateID {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: templateID, Name: "base", Image: engine.ViewOf("/", "")}, nil
}
