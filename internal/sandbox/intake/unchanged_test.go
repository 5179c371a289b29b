package intake

import (
	"errors"
	"io"
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/sandbox"
)

type told []events.Event

func (t *told) Next() (events.Event, error) {
	if len(*t) == 0 {
		return events.Event{}, io.EOF
	}
	e := (*t)[0]
	*t = (*t)[1:]
	if e.Kind == "" {
		return e, errors.New("damaged")
	}
	return e, nil
}

// The workspace counts as unchanged only if the events prove it. A gap, a broken line
// or an unknown path means that the files are compared.
func TestOnlyWhatWasSeenIsUnchanged(t *testing.T) {
	file := func(path string) events.Event { return events.Event{Kind: events.File, Path: path} }
	began := events.Event{Kind: events.Began}
	for name, c := range map[string]struct {
		events told
		want   bool
	}{
		"nothing was watched": {nil, false},
		"nothing happened":    {told{began, {Kind: events.Exec}, {Kind: events.Exit}}, true},
		"elsewhere":           {told{began, file("/tmp/x"), file("/workspace2/x"), file("/home/workspace")}, true},
		"inside":              {told{began, file("/tmp/x"), file("/workspace/a")}, false},
		"itself":              {told{began, file("/workspace")}, false},
		"above":               {told{began, file("/")}, false},
		"unknown":             {told{began, file("workspace/a")}, false},
		"no path":             {told{began, file("")}, false},
		"gap":                 {told{began, {Kind: events.Gap, Lost: 1}}, false},
		"damaged":             {told{began, {}}, false},
	} {
		if got := untouched(&c.events, sandbox.Base{}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
