package cli

import (
	"testing"

	"github.com/crannog/crannog/api"
)

func TestPlaceInQueue(t *testing.T) {
	q := api.Queue{Waiting: 87, Requests: []api.QueuedStart{
		{RequestID: "other", SandboxID: "i1", Place: 11, ExpectedSeconds: 12},
		{RequestID: "own", SandboxID: "i2", Place: 12, ExpectedSeconds: 13.7},
		{SandboxID: "i3", Place: 1, ExpectedSeconds: 0.2},
		{SandboxID: "i4", Place: 2},
	}}
	for _, c := range []struct {
		own  func(api.QueuedStart) bool
		want string
	}{
		{func(r api.QueuedStart) bool { return r.RequestID == "own" }, " (place 12 of 87 in the queue, about 14s)"},
		{aboutSandbox("i3"), " (place 1 of 87 in the queue, about 1s)"},
		{aboutSandbox("i4"), " (place 2 of 87 in the queue)"},
		{aboutSandbox("i5"), ""},
	} {
		if got := placeIn(q, c.own); got != c.want {
			t.Errorf("placeIn: got %q, want %q", got, c.want)
		}
	}
}
