package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

//go:generate go test . -run ^TestOpenAPIFile$ -update

// Placeholders for services, so that the description contains all operations. Their methods are not
// called.
type (
	noStates    struct{ States }
	noSnapshots struct{ snapshotService }
	noChanges   struct{ changeService }
	noSecrets   struct{ Secrets }
	noAudit     struct{ auditService }
	noRecorded  struct{ recordedService }
	noImages    struct{ Images }
	noPackages  struct{ PackageCache }
	noAdvised   struct{ advisoryService }
	noTransfer  struct{ ImageTransfer }
	noBuilds    struct{ Builds }
	noTemplates struct{ Templates }
	noCommits   struct{ commitService }
	noVolumes   struct{ volumeService }

	// An embedded interface cannot have a method of its own name.
	snapshotService = Snapshots
	volumeService   = Volumes
	advisoryService = Advisories
	changeService   = Changes
	auditService    = AuditLog
	recordedService = Recorded
	commitService   = Commits
)

// OpenAPI describes every operation that a server can have, as JSON. Clients in other languages are
// generated from it.
func OpenAPI() ([]byte, error) {
	a := registerAll(http.NewServeMux(), Deps{
		States: noStates{}, Snapshots: noSnapshots{}, Changes: noChanges{}, Secrets: noSecrets{}, Audit: noAudit{},
		Tap: &observe.Tap{}, Recordings: &recording.Store{}, Recorded: noRecorded{}, Approvals: &approval.Service{},
		Images: noImages{}, PackageCache: noPackages{}, Advisories: noAdvised{}, ImageTransfer: noTransfer{}, Builds: noBuilds{}, Templates: noTemplates{}, Commits: noCommits{}, Volumes: noVolumes{},
		Provenance: &provenance.Keys{}, Version: "1",
	})
	data, err := json.Marshal(a.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", " "); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}

// registerAll registers the operations of all resources.
func registerAll(mux *http.ServeMux, deps Deps) huma.API {
	a := humago.New(mux, apiConfig(deps.Version))
	// Error answers have one description, whether they are a whole answer or a part of one.
	a.OpenAPI().Components.Schemas.RegisterTypeAlias(reflect.TypeFor[problem](), reflect.TypeFor[api.Problem]())
	for _, resource := range resources(deps) {
		resource.register(&registry{a, deps.Log})
	}
	return a
}
