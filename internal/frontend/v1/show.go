package v1

import (
	"net/http"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/denial"
)

// ShowEntry converts an entry to its API form, for other frontends.
func ShowEntry(e audit.Entry) api.Entry { return toEntry(e) }

// ShowFlow converts a flow to its API form, for other frontends.
func ShowFlow(r egress.Record) api.FlowRecord { return denial.Flow(r) }

// WriteProblem answers with an error, for other frontends.
func WriteProblem(w http.ResponseWriter, err error) { writeProblem(w, err) }
