package process

import (
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/guest/census"
)

// Only a process that joined the group while its leader was dying from the signal gets it again.
func TestMissedFindsNewOrphans(t *testing.T) {
	leader := census.Member{PID: 10, Parent: 1, Start: 100}
	old := census.Member{PID: 11, Parent: 10, Start: 101}
	for name, c := range map[string]struct {
		members []census.Member
		want    []int
	}{
		"no member":                  {nil, nil},
		"old member that handles it": {[]census.Member{old}, nil},
		"leader that handles it":     {[]census.Member{leader, {PID: 12, Parent: 10, Start: 102}}, nil},
		"child of an old member":     {[]census.Member{old, {PID: 12, Parent: 11, Start: 102}}, nil},
		"orphan":                     {[]census.Member{old, {PID: 12, Parent: 1, Start: 102}}, []int{12}},
		"orphan and its child":       {[]census.Member{{PID: 12, Parent: 1, Start: 102}, {PID: 13, Parent: 12, Start: 102}}, []int{12, 13}},
		"orphan with a reused PID":   {[]census.Member{{PID: 11, Parent: 1, Start: 102}}, []int{11}},
	} {
		g := &group{leader: 10, before: map[int]uint64{10: 100, 11: 101}}
		var got []int
		for _, m := range g.missed(c.members) {
			got = append(got, m.PID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
