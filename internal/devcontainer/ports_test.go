package devcontainer

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestPorts(t *testing.T) {
	plan, err := Make(Options{LookUp: none, Dir: workspace(t, `{
		"image": "a", "forwardPorts": [3000, "localhost:5000", "127.0.0.1:3001", 3000], "appPort": [8080, "5000"],
		"portsAttributes": {
			"3000": {"label": "web", "onAutoForward": "openBrowser"}, "3000-3005": {"requireLocalPort": true},
			"localhost:8080": {"label": "app"}, "node .*": {"label": "no"}, "9000": {"label": "no"}
		},
		"otherPortsAttributes": {"label": "other"}
	}`)})
	if err != nil || !slices.Equal(plan.Ports, []int{3000, 5000, 3001, 8080}) {
		t.Fatalf("Make: got ports %v, error %v", plan.Ports, err)
	}
	want := map[int]PortAttributes{3000: {Label: "web"}, 3001: {RequireLocalPort: true}, 5000: {Label: "other"}, 8080: {Label: "app"}}
	if !maps.Equal(plan.PortAttributes, want) {
		t.Errorf("port attributes: got %v, want %v", plan.PortAttributes, want)
	}
}

// Attack: a repository has the user's machine connect to another host through the sandbox.
func TestOnlyPortsOfTheSandbox(t *testing.T) {
	for config, reason := range map[string]string{
		`"forwardPorts": ["db:5432"]`:            `is a port of the host "db"`,
		`"forwardPorts": ["169.254.169.254:80"]`: `is a port of the host "169.254.169.254"`,
		`"forwardPorts": ["0.0.0.0:80"]`:         `is a port of the host "0.0.0.0"`,
		`"forwardPorts": [0]`:                    "is not a port of the sandbox",
		`"forwardPorts": [65536]`:                "is not a port of the sandbox",
		`"forwardPorts": [-1]`:                   "is not a port of the sandbox",
		`"forwardPorts": ["ssh"]`:                "is not a port of the sandbox",
		`"forwardPorts": [[3000]]`:               "is not a port of the sandbox",
		`"appPort": "8080:80"`:                   "publishes a port under another number",
	} {
		_, err := Make(Options{LookUp: none, Dir: workspace(t, `{"image": "a", `+config+`}`)})
		if fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), reason) {
			t.Errorf("Make with %s: got %v, want %q in it", config, err, reason)
		}
	}
}
