package ingest

import (
	"encoding/json"
	"errors"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
)

// Flows returns the Form of flow files, as the egress gateway writes them. The data of an entry of
// kind flow is an egress.Record, which has secrets by name only.
func Flows(dir string) Form { return Form{Source: "net", Dir: dir, Read: readFlow} }

func readFlow(line []byte, hide Redact) (Line, error) {
	var r egress.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Line{}, err
	}
	if r.Seq == 0 {
		return Line{}, errors.New("the line has no number")
	}
	// Programs inside control all of these fields, so any of them could contain a secret value.
	for _, text := range []*string{&r.Method, &r.Host, &r.Path, &r.Reason, &r.Fix, &r.Error} {
		*text = hide.text(*text)
	}
	if text, err := json.Marshal(r); err != nil || len(text) > maxArguments {
		r.Method, r.Path, r.Reason, r.Fix, r.Error = "", "", "", "", "omitted: the texts are too long"
	}
	return Line{Seq: r.Seq, Draft: audit.Draft{Time: r.Time, Kind: audit.Flow, Actor: "box", Data: r}}, nil
}
