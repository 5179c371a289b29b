package build

import (
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// P60: a key cannot give a name to an image that another caller might use.
func TestKeyMayNameOnlyItsOwnImages(t *testing.T) {
	key := sandbox.Principal{KeyID: "k123"}
	for name, allowed := range map[string]bool{
		"localhost/k123/app": true, "localhost/k123/app:1": true, "localhost/k123/a/b:1": true,
		"python:3.12-slim": false, "app": false, "k123/app": false, "localhost/app": false, "localhost/k123:1": false, "localhost/k1234/app": false,
		"localhost/k12/app": false, "localhost/k123/../other/app": false, "docker.io/localhost/k123/app": false, "localhost:5000/k123/app": false,
		"registry.example/localhost/k123/app": false, "LOCALHOST/k123/app": false, "": false,
	} {
		if err := checkName(key, name); (err == nil) != allowed {
			t.Errorf("checkName(%q): got error %v, want allowed %v", name, err, allowed)
		}
	}
	if err := checkName(sandbox.Principal{}, "localhost//app"); err == nil {
		t.Error("a caller without a key may name an image")
	}
	if err := checkName(key, "python:3.12-slim"); fault.KindOf(err) != fault.Denied || fault.HintOf(err) == "" {
		t.Errorf("checkName: got %v, want Denied with a hint", err)
	}
	if err := checkName(sandbox.Principal{Local: true}, "python:3.12-slim"); err != nil {
		t.Errorf("checkName of a local caller: %v", err)
	}
}
