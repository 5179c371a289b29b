package denial

import (
	"fmt"
	"slices"
	"testing"

	"github.com/crannog/crannog/api"
)

// TestListKeepsEachDenialOnce adds repeated denials and a denial of a readiness probe.
func TestListKeepsEachDenialOnce(t *testing.T) {
	var l List
	for _, r := range []api.FlowRecord{
		{Kind: "dns", Method: "A", Host: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{Kind: "dns", Method: "AAAA", Host: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{Kind: "tcp", Host: "169.254.169.254", Port: 80, Rule: "floor.address", Probe: true},
		{Kind: "http", Method: "POST", Host: "b.test", Port: 443, Path: "/x\x1b[2J", Rule: "r", Fix: "crannog approve", Approval: "q1"},
		Name("box", "c.test"),
		{Kind: "http", Method: "GET", Host: "d.test", Port: 443, Path: "/a", Rule: "packages.deny", Reason: "The package is\x1b denied.", Package: &api.PackageFact{}},
		{Kind: "http", Method: "GET", Host: "d.test", Port: 443, Path: "/b", Rule: "floor.private", Reason: "it is private", Fix: "name it", Package: &api.PackageFact{}},
	} {
		l.Add(r)
	}
	want := []api.Denial{
		{What: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"},
		{What: "POST https://b.test/x\uFFFD[2J", Rule: "r", Fix: "crannog approve q1"},
		{What: "c.test", Rule: "network.none", Fix: "--allow c.test"},
		{What: "GET https://d.test/a", Rule: "packages.deny", Reason: "The package is\uFFFD denied."},
		{What: "GET https://d.test/b", Rule: "floor.private", Fix: "name it"},
	}
	if got := l.All(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestListStopsAtMax adds more denials than are listed.
func TestListStopsAtMax(t *testing.T) {
	var l List
	var counts []int
	for i := range 3 * MaxListed {
		if _, n := l.Add(Name("box", fmt.Sprint(i, ".test"))); n > 0 {
			counts = append(counts, n)
		}
	}
	if len(l.All()) != MaxListed || len(counts) != MaxListed+1 || counts[MaxListed] != MaxListed+1 || len(l.reported) != MaxListed {
		t.Errorf("got %d denials, counts %v and %d remembered; want %d denials", len(l.All()), counts, len(l.reported), MaxListed)
	}
}
