package httpapi

import (
	"net/http"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/record"
	"github.com/crannog/crannog/internal/refusal"
)

// ShowEntry is an entry as it goes over the wire, for other doors.
func ShowEntry(e record.Entry) api.Entry { return toEntry(e) }

// ShowFlow is a record of a link as it goes over the wire, for other doors.
func ShowFlow(r causeway.Record) api.FlowRecord { return refusal.Flow(r) }

// WriteProblem answers with an error, for other doors.
func WriteProblem(w http.ResponseWriter, err error) { writeProblem(w, err) }
