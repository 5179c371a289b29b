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
	"github.com/crannog/crannog/internal/sandbox"
)

//go:generate go test . -run ^TestOpenAPIFile$ -update

// These stand for what a route needs to be there, in a server that only
// describes itself and answers nothing.
type (
	snapshots   = sandbox.Snapshots // which has a method of its own name
	records     = Record
	recordings  = sandbox.Recorded
	noStates    struct{ sandbox.States }
	noSnapshots struct{ snapshots }
	noChanges   struct{ sandbox.Changing }
	noSecrets   struct{ Secrets }
	noRecord    struct{ records }
	noRecorded  struct{ recordings }
	noProcesses struct{ Processes }
)

// OpenAPI describes every operation that a server can have, as JSON. Clients
// in other languages are generated from it.
func OpenAPI() ([]byte, error) {
	s := &server{mux: http.NewServeMux(), Deps: Deps{
		States: noStates{}, Snapshots: noSnapshots{}, Changing: noChanges{}, Secrets: noSecrets{}, Record: noRecord{},
		Tap: &observe.Tap{}, Recordings: &recording.Shelf{}, Recorded: noRecorded{}, Approvals: &approval.Service{},
		Provenance: &provenance.Keys{}, Processes: noProcesses{},
	}}
	a := s.describe("1")
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

// describe registers every operation with the mux.
func (s *server) describe(version string) huma.API {
	a := humago.New(s.mux, apiConfig(version))
	// An error answer has one description, whether it is a whole answer or a
	// part of one.
	a.OpenAPI().Components.Schemas.RegisterTypeAlias(reflect.TypeFor[problem](), reflect.TypeFor[api.Problem]())
	s.routes(a)
	return a
}
