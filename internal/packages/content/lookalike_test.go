package content

import (
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestLookAlikesOfPopularAndKnownNamesAreFound(t *testing.T) {
	known := []string{"left-pad", "@acme/tools", "abcd"}
	for name, looks := range map[string]bool{
		"lodash": false, "lodahs": true, "lodas": true, "lodashs": true, "l0dash": true, "Lodash": true, "crossenv": true, "lodash_merge": true,
		"preact": false, "react": false, "reactt": true, "raect": true, "left-pad": false, "leftpad": true, "left_pad": true, "leftpads": false,
		"axio": false, "abce": false, "@acme/toolz": false, "@acmee/tools": true, "unrelated": false, "": false,
	} {
		if got := NearName(packages.Artifact{Ecosystem: packages.NPM, Name: name}, known); (got != nil) != looks {
			t.Errorf("npm:%s: got %+v, want a finding: %v", name, got, looks)
		}
	}
	for _, c := range []struct {
		ecosystem packages.Ecosystem
		name      string
		looks     bool
	}{
		{packages.PyPI, "requests", false}, {packages.PyPI, "reqeusts", true}, {packages.PyPI, "request", true}, {packages.PyPI, "python-dateutil", false},
		{packages.PyPI, "python_dateutil", false}, {packages.PyPI, "python3-dateutil", true}, {packages.PyPI, "scapy", false},
		{packages.Crates, "serde-json", false}, {packages.Crates, "serdejson", true}, {packages.Crates, "tokyo", true}, {packages.Crates, "hyperx", false},
		{packages.Go, "github.com/gin-gonic/gin", false}, {packages.Go, "github.com/gin-gonlc/gin", true}, {packages.Go, "github.com/gin-gonic/gins", false},
		{packages.Go, "github.com/redis/go-redis/v9", false}, {packages.Go, "github.com/rediss/go-redis/v9", true},
		{packages.Go, "gopkg.in/yaml.v2", false}, {packages.Go, "github.com/jackc/pgx/v5", false},
		{packages.Maven, "com.google.guava:guava", false}, {packages.Maven, "com.goggle.guava:guava", true}, {packages.Maven, "junit:junitt", false},
		{packages.Apt, "lodahs", false},
	} {
		if got := NearName(packages.Artifact{Ecosystem: c.ecosystem, Name: c.name}, nil); (got != nil) != c.looks {
			t.Errorf("%s:%s: got %+v, want a finding: %v", c.ecosystem, c.name, got, c.looks)
		}
	}
	if got := NearName(packages.Artifact{Ecosystem: packages.NPM, Name: "leftpad"}, nil); got != nil {
		t.Errorf("control: without the lockfile, leftpad has %+v", got)
	}
	// A popular or known package is no finding, also if another is near it.
	for e, list := range popular {
		for _, name := range list {
			if got := NearName(packages.Artifact{Ecosystem: e, Name: name}, nil); got != nil {
				t.Errorf("the popular %s:%s has %+v", e, name, got)
			}
		}
	}
}
