package process

import (
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/guest/census"
)

// Only a process that joined a group while its leader died of the signal gets it again.
func TestMissed(t *testing.T) {
	leader := census.Member{PID: 10, Parent: 1, Start: 100}
	old := census.Member{PID: 11, Parent: 10, Start: 101}
	for name, c := range map[string]struct {
		members []census.Member
		want    []int
	}{
		"nothing is left":                   {nil, nil},
		"a member that handles it":          {[]census.Member{old}, nil},
		"the leader handles it":             {[]census.Member{leader, {PID: 12, Parent: 10, Start: 102}}, nil},
		"what a member starts to clean up":  {[]census.Member{old, {PID: 12, Parent: 11, Start: 102}}, nil},
		"an orphan":                         {[]census.Member{old, {PID: 12, Parent: 1, Start: 102}}, []int{12}},
		"an orphan and its child":           {[]census.Member{{PID: 12, Parent: 1, Start: 102}, {PID: 13, Parent: 12, Start: 102}}, []int{12, 13}},
		"an orphan with a number used once": {[]census.Member{{PID: 11, Parent: 1, Start: 102}}, []int{11}},
	} {
		g := &group{leader: 10, before: map[int]uint64{10: 100, 11: 101}}
		var got []int
		for _, m := range g.missed(c.members) {
			got = append(got, m.PID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
