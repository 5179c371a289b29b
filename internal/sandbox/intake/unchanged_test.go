package intake

import (
	"errors"
	"io"
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/sandbox"
)

type eventList []events.Event

func (t *eventList) Next() (events.Event, error) {
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

// TestUnchangedNeedsCompleteEvents checks that the workspace counts as unchanged only if the events
// prove it. After a gap, a broken line or an unknown path, the files must be compared.
func TestUnchangedNeedsCompleteEvents(t *testing.T) {
	file := func(path string) events.Event { return events.Event{Kind: events.File, Path: path} }
	started := events.Event{Kind: events.Began}
	for name, c := range map[string]struct {
		events eventList
		want   bool
	}{
		"nothing was watched": {nil, false},
		"nothing happened":    {eventList{started, {Kind: events.Exec}, {Kind: events.Exit}}, true},
		"elsewhere":           {eventList{started, file("/tmp/x"), file("/workspace2/x"), file("/home/workspace")}, true},
		"inside":              {eventList{started, file("/tmp/x"), file("/workspace/a")}, false},
		"itself":              {eventList{started, file("/workspace")}, false},
		"above":               {eventList{started, file("/")}, false},
		"unknown":             {eventList{started, file("workspace/a")}, false},
		"no path":             {eventList{started, file("")}, false},
		"gap":                 {eventList{started, {Kind: events.Gap, Lost: 1}}, false},
		"damaged":             {eventList{started, {}}, false},
	} {
		if got := untouched(&c.events, sandbox.Base{}); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
