package devcontainer

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// Attack: a repository names a volume of another project, or places its own over the system.
func TestVolumesBelongToTheirConfiguration(t *testing.T) {
	config := `{"image": "a", "mounts": ["source=cache,target=/cache,type=volume", {"type": "volume", "source": "data", "target": "/data", "readonly": true}]}`
	plan, err := Make(Options{Dir: workspace(t, config), LookUp: none})
	if err != nil || len(plan.Volumes) != 2 {
		t.Fatalf("Make: got volumes %v, error %v, want two", plan.Volumes, err)
	}
	prefix := "dev-" + plan.ID[40:] + "-"
	if plan.Volumes[0] != (VolumeMount{prefix + "cache", "/cache", false}) || plan.Volumes[1] != (VolumeMount{prefix + "data", "/data", true}) {
		t.Errorf("volumes: got %v", plan.Volumes)
	}
	other, err := Make(Options{Dir: workspace(t, config), LookUp: none})
	if err != nil || other.Volumes[0].Name == plan.Volumes[0].Name {
		t.Errorf("Make in another directory: got volumes %v, error %v, want other names", other.Volumes, err)
	}
	for _, mount := range []string{
		"source=a,target=/etc,type=volume", "source=a,target=/proc/x,type=volume", "source=a,target=/workspace/x,type=volume", "source=a,target=/,type=volume",
		"source=a,target=/x/../etc/b,type=volume", "target=/x,type=volume", "source=../a,target=/x,type=volume", "source=a/b,target=/x,type=volume",
		"source=" + strings.Repeat("a", 41) + ",target=/x,type=volume", "source=a,target=/x,type=volume,volume-driver=local",
	} {
		if _, err := Make(Options{Dir: workspace(t, `{"image": "a", "mounts": ["`+mount+`"]}`), LookUp: none}); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("Make with the mount %s: got %v, want Unsupported", mount, err)
		}
	}
}
