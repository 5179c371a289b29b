package policy_test

import (
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

// An entry for an archive names its host, path and suite, and no other archive.
func TestUnverifiedArchives(t *testing.T) {
	for entry, want := range map[string][2]bool{ // whether each of two suites is permitted
		"apt:apt.example.com/debian/bookworm": {true, false},
		"apt:apt.example.com/**":              {true, true},
		"apt:apt.example.com/debian/*":        {true, true},
		"apt:bookworm":                        {false, false},
		"go:**":                               {false, false},
	} {
		p := packagePolicy(t, `cache: [apt]`, `cache: [apt]`)
		if p.Unverified(packages.Artifact{Ecosystem: packages.Apt, Name: "apt.example.com/debian/bookworm"}) {
			t.Fatal("an archive is permitted without an entry")
		}
		list := `cache: [apt], unverified: ["` + entry + `"]`
		p = packagePolicy(t, list, list)
		for i, name := range []string{"apt.example.com/debian/bookworm", "apt.example.com/debian/trixie"} {
			if got := p.Unverified(packages.Artifact{Ecosystem: packages.Apt, Name: name}); got != want[i] {
				t.Errorf("%s: permits %s: %t, want %t", entry, name, got, want[i])
			}
		}
	}
}
