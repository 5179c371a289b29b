package v1

import (
	"net/http"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/denial"
)

// ShowEntry is an entry as it goes over the wire, for other doors.
func ShowEntry(e audit.Entry) api.Entry { return toEntry(e) }

// ShowFlow is a record of a link as it goes over the wire, for other doors.
func ShowFlow(r egress.Record) api.FlowRecord { return denial.Flow(r) }

// WriteProblem answers with an error, for other doors.
func WriteProblem(w http.ResponseWriter, err error) { writeProblem(w, err) }
