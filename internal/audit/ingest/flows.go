package ingest

import (
	"encoding/json"
	"errors"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
)

// Flows is the form of what the causeway has written of a sandbox's link. The
// data of an entry of the kind flow is a egress.Record, in which secrets are
// names.
func Flows(dir string) Form { return Form{Source: "net", Dir: dir, Read: readFlow} }

func readFlow(line []byte, hide Hide) (Line, error) {
	var r egress.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Line{}, err
	}
	if r.Seq == 0 {
		return Line{}, errors.New("a line without a number")
	}
	// A program chooses all of these; a value that it has come by could be in
	// any of them.
	for _, text := range []*string{&r.Method, &r.Host, &r.Path, &r.Reason, &r.Fix, &r.Error} {
		*text = hide.text(*text)
	}
	if text, err := json.Marshal(r); err != nil || len(text) > mostData {
		r.Method, r.Path, r.Reason, r.Fix, r.Error = "", "", "", "", "left out: the texts are too long"
	}
	return Line{Seq: r.Seq, Draft: audit.Draft{Time: r.Time, Kind: audit.Flow, Actor: "box", Data: r}}, nil
}
