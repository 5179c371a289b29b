// Package v1 serves Crannog's HTTP API, version 1: its routes, its errors and the conversion
// between API and domain types. Package sandbox contains the rules.
package v1

import (
	"cmp"
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
	"github.com/crannog/crannog/internal/telemetry"
)

// Deps are the dependencies of New. The operations of a resource are absent if its service is nil.
type Deps struct {
	Finder    Finder
	Lifetimes Lifetimes
	Monitor   Monitor
	Guests    Guests
	// Output holds the output of all calls of exec. Nil means a buffer of a fixed size.
	Output     *client.Budget
	Access     Access
	NetworkLog NetworkLog
	States     States    // may be nil
	Snapshots  Snapshots // may be nil
	Changes    Changes   // may be nil
	// PackageCache has the packages that sandboxes share. It may be nil.
	PackageCache PackageCache
	// Advisories has the advisory databases of the package gate. It may be nil.
	Advisories Advisories
	// Figures are the metrics of the server. They may be nil.
	Figures Figures
	// Images lists the machine's images, and ImageTransfer moves them. Both may be nil.
	Images        Images
	ImageTransfer ImageTransfer
	Builds        Builds    // may be nil
	Templates     Templates // may be nil
	Commits       Commits   // may be nil
	Volumes       Volumes   // may be nil
	Pruner        Pruner
	Queue         Queue
	Engines       *engine.Registry
	Keys          Keys
	Secrets       Secrets           // may be nil
	Approvals     *approval.Service // may be nil
	Audit         AuditLog          // may be nil
	// Tap observes exec, Recordings stores the session recordings, and Recorded decides which of
	// them a caller may read. Without them nothing is recorded.
	Tap        *observe.Tap
	Recordings *recording.Store
	Recorded   Recorded
	// Provenance signs exports. It may be nil.
	Provenance *provenance.Keys
	// Auth returns the caller of a request, or an error of the kind Unauthenticated.
	Auth    func(*http.Request) (sandbox.Principal, error)
	Log     *slog.Logger
	Version string
	// Domain is the suffix of sandboxes' host names, or "".
	Domain string
}

// server authenticates requests and passes them to the handlers of their resource.
type server struct {
	auth func(*http.Request) (sandbox.Principal, error)
	log  *slog.Logger
	mux  *http.ServeMux
}

// New returns the handler of all paths below /v1/.
func New(deps Deps) http.Handler {
	s := &server{deps.Auth, deps.Log, http.NewServeMux()}
	registerAll(s.mux, deps)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, fault.Newf(fault.NotFound, "route_not_found", "there is no %s %s", r.Method, r.URL.Path))
	})
	return s
}

// resource is a group of handlers that registers its own operations.
type resource interface{ register(r *registry) }

// resources returns the handlers of each resource.
func resources(d Deps) []resource {
	heads := &treeHeads{auditLog: d.Audit, log: d.Log}
	return []resource{
		&sandboxHandlers{d.Finder, d.Lifetimes, d.Monitor, heads},
		&accessHandlers{d.Finder, d.Access, d.NetworkLog, d.Log},
		&stateHandlers{d.States, d.Log},
		&snapshotHandlers{d.Snapshots},
		&packageHandlers{d.PackageCache},
		&advisoryHandlers{d.Advisories},
		&imageHandlers{d.Images, d.ImageTransfer, d.Engines, d.Log},
		&buildHandlers{d.Builds, d.Log},
		&templateHandlers{d.Templates, d.Commits},
		&volumeHandlers{d.Volumes, d.Log},
		&changeHandlers{d.Changes, d.Provenance, d.Log},
		&secretHandlers{d.Secrets},
		&approvalHandlers{d.Finder, d.Approvals, d.Log},
		&auditHandlers{d.Finder, d.Audit, d.Log},
		&recordingHandlers{d.Recordings, d.Recorded, d.Log},
		&queueHandlers{d.Queue, d.Figures},
		&execHandlers{d.Finder, d.States, d.Guests, &denials{d.NetworkLog, d.Log}, d.Tap, heads, cmp.Or(d.Output, client.NewBudget(outputMemory))},
		&pruneHandlers{d.Pruner},
		&engineHandlers{registry: d.Engines},
		&keyHandlers{d.Keys},
		&versionHandlers{d.Version, d.Domain},
	}
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

func op(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: api.Prefix + path, Summary: summary,
		MaxBodyBytes: maxBody,
		// The body has been read. If the read deadline stayed on the connection, it would cut off a
		// long command's answer.
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

// callerKey is the context key that carries the principal through huma to register.
type callerKey struct{}

// registry is where resources register their operations.
type registry struct {
	api huma.API
	log *slog.Logger
}

// register adds an operation whose handler gets its caller as an argument.
func register[I, O any](r *registry, o huma.Operation, handle func(context.Context, sandbox.Principal, *I) (*O, error)) {
	huma.Register(r.api, o, func(ctx context.Context, in *I) (*O, error) {
		caller, ok := ctx.Value(callerKey{}).(sandbox.Principal)
		if !ok {
			return nil, problemOf(fault.New(fault.Unauthenticated, "unauthenticated", "no caller"))
		}
		out, err := handle(ctx, caller, in)
		telemetry.Served(ctx, o.OperationID, err)
		if err != nil {
			logInternal(ctx, r.log, o.OperationID, err)
			return nil, problemOf(err)
		}
		return out, nil
	})
}
