// Package v1 owns Crannog's HTTP API, version 1: its routes, its errors
// and the conversion between wire and domain types. The rules are the
// sandbox package's.
package v1

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/key"
)

// Keys manages API keys; key.Ring does.
type Keys interface {
	CreateFor(ctx context.Context, name string, opens key.Opens) (secret string, k key.Key, err error)
	List(ctx context.Context) ([]key.Key, error)
	Revoke(ctx context.Context, ref string) (key.Key, error)
}

// Pruner forgets what has ended; sandbox.Service does.
type Pruner interface {
	Prune(ctx context.Context, who sandbox.Principal) (lifecycle.Pruned, error)
}

// Deps are what the API stands on. What may be absent says so.
type Deps struct {
	Sandboxes sandbox.Sandboxes
	Networks  sandbox.Networks
	// States and Snapshots are about sandboxes' saved states. Without them the
	// routes about them are absent.
	States    sandbox.States
	Snapshots sandbox.Snapshots
	// Changing is about what boxes have changed. Without it the routes about
	// that are absent.
	Changing sandbox.Changing
	Pruner   Pruner
	// Queue describes the queue of starts.
	Queue   Queue
	Traffic sandbox.Traffic
	// Processes lists what runs in a sandbox. Without it the route about that is
	// absent.
	Processes Processes
	// Tap puts on record what exec runs, and Recordings are what commands
	// printed. Without them nothing is recorded, and the routes about
	// recordings are absent.
	Tap        *observe.Tap
	Recordings *recording.Shelf
	// Recorded says whose recordings a caller may read. It is there where
	// Recordings are.
	Recorded sandbox.Recorded
	Keys     Keys
	// Engines are those that sandboxes can be created on.
	Engines *engine.Registry
	// Approvals are the questions of sandboxes. Without it there are none,
	// and the routes about them are absent.
	Approvals *approval.Service
	// Auth says who asks, or fails with Unauthenticated.
	Auth    func(*http.Request) (sandbox.Principal, error)
	Log     *slog.Logger
	Version string
	// Domain is what sandboxes' host names end in, or "".
	Domain string
	// Secrets are sealed secrets. Without it there are none, and the routes
	// about them are absent.
	Secrets Secrets
	// Record is what happened. Without it the routes about it are absent.
	Record Record
	// Provenance has the key that signs for what comes out. Without it the
	// route about that is absent.
	Provenance *provenance.Keys
}

type server struct {
	Deps
	mux    *http.ServeMux
	stamps stamps
	output *client.Room // that answers of exec are held in
	probes probes
}

// New returns the handler of everything below /v1/.
func New(deps Deps) http.Handler {
	s := &server{Deps: deps, mux: http.NewServeMux(), output: client.NewRoom(outputRoom)}
	s.describe(deps.Version)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, fault.Newf(fault.NotFound, "route_not_found", "there is no %s %s", r.Method, r.URL.Path))
	})
	return s
}

func apiConfig(version string) huma.Config {
	config := huma.DefaultConfig("Crannog", version)
	config.Info.Description = "Sandboxes for untrusted code."
	config.OpenAPIPath = api.Prefix + "/openapi"
	config.DocsPath = ""
	config.SchemasPath = ""
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	// The default hook adds a $schema link to every answer.
	config.CreateHooks = nil
	config.RejectUnknownQueryParameters = true
	config.Security = []map[string][]string{{"key": {}}, {"bearer": {}}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key":    {Type: "apiKey", In: "header", Name: "X-API-KEY"},
		"bearer": {Type: "http", Scheme: "bearer"},
	}
	return config
}

// routes names every operation of the API.
func (s *server) routes(a huma.API) {
	s.sandboxRoutes(a)
	s.accessRoutes(a)
	s.stateRoutes(a)
	s.snapshotRoutes(a)
	s.changeRoutes(a)
	s.secretRoutes(a)
	s.approvalRoutes(a)
	s.recordRoutes(a)
	s.recordingRoutes(a)
	s.queueRoutes(a)
	register(s, a, s.inRoom(op("exec", "POST", "/sandboxes/{id}/exec", "Run one command and return what it printed")), s.exec)
	register(s, a, op("prune", "POST", "/prune", "Forget stopped sandboxes"), s.prune)
	s.engineRoutes(a)
	register(s, a, op("keys-list", "GET", "/keys", "API keys"), s.listKeys)
	register(s, a, created(op("keys-create", "POST", "/keys", "Make an API key")), s.createKey)
	register(s, a, empty(op("keys-revoke", "DELETE", "/keys/{id}", "Make an API key useless")), s.revokeKey)
	register(s, a, op("version", "GET", "/version", "The server's version"), s.version)
}

func op(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: api.Prefix + path, Summary: summary,
		MaxBodyBytes: maxBody,
		// The body is in memory by then. A read deadline that stayed on the
		// connection would cut a long command's answer.
		BodyReadTimeout: -1,
	}
}

func created(o huma.Operation) huma.Operation {
	o.DefaultStatus = http.StatusCreated
	return o
}

func empty(o huma.Operation) huma.Operation {
	o.DefaultStatus = http.StatusNoContent
	return o
}

// callerKey carries the principal through huma, whose handlers take no
// argument of ours; register takes it out again.
type callerKey struct{}

// register adds an operation whose handler gets its caller as an argument.
func register[I, O any](s *server, a huma.API, o huma.Operation, handle func(context.Context, sandbox.Principal, *I) (*O, error)) {
	huma.Register(a, o, func(ctx context.Context, in *I) (*O, error) {
		who, ok := ctx.Value(callerKey{}).(sandbox.Principal)
		if !ok {
			return nil, problemOf(fault.New(fault.Unauthenticated, "unauthenticated", "no caller"))
		}
		out, err := handle(ctx, who, in)
		if err != nil {
			s.logInternal(ctx, o.OperationID, err)
			return nil, problemOf(err)
		}
		return out, nil
	})
}
