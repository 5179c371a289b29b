package denial

import (
	"fmt"
	"slices"
	"testing"

	"github.com/crannog/crannog/api"
)

func TestEachThingIsToldOnceWithWhatWouldAllowIt(t *testing.T) {
	var l List
	for _, r := range []api.FlowRecord{
		{Kind: "dns", Method: "A", Host: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{Kind: "dns", Method: "AAAA", Host: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{Kind: "tcp", Host: "169.254.169.254", Port: 80, Rule: "floor.address", Probe: true},
		{Kind: "http", Method: "POST", Host: "b.test", Port: 443, Path: "/x\x1b[2J", Rule: "r", Fix: "crannog approve", Approval: "q1"},
		Name("box", "c.test"),
	} {
		l.Add(r)
	}
	want := []api.Denial{
		{What: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{What: "POST https://b.test/x\uFFFD[2J", Rule: "r", Fix: "crannog approve q1"},
		{What: "c.test", Rule: "network.none", Fix: "--allow c.test"},
	}
	if got := l.All(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestALoopIsToldInBounds(t *testing.T) {
	var l List
	var told []int
	for i := range 3 * Most {
		if _, n := l.Add(Name("box", fmt.Sprint(i, ".test"))); n > 0 {
			told = append(told, n)
		}
	}
	if len(l.All()) != Most || len(told) != Most+1 || told[Most] != Most+1 || len(l.reported) != Most {
		t.Errorf("%d are told, as %v, and %d remembered", len(l.All()), told, len(l.reported))
	}
}
