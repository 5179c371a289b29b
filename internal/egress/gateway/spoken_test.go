package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// messages are those that a controller sends and receives after hello.
var messages = []any{attachBody{}, attachReply{}, updateBody{}, updateReply{}, sandboxBody{}, adoptBody{}, adoptReply{}, listReply{}, askBody{}, Event{}}

// fields lists the fields of a type in their wire format.
func fields(t reflect.Type, path string, out map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer:
		fields(t.Elem(), path, out)
	case reflect.Slice, reflect.Array:
		fields(t.Elem(), path+"[]", out)
	case reflect.Map:
		fields(t.Elem(), path+".*", out)
	case reflect.Struct:
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
			case name == "" && f.Anonymous:
				fields(f.Type, path, out)
			case name == "":
				fields(f.Type, path+"."+f.Name, out)
			default:
				fields(f.Type, path+"."+name, out)
			}
		}
	default:
		out[path] = true
	}
}

// known returns the fields of all messages of a version.
func known(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// A peer rejects unknown fields, so each new field needs a version: otherwise an upgraded server
// could give no sandbox a network while an earlier process holds one.
func TestAFieldMoreIsAVersionMore(t *testing.T) {
	got := map[string]bool{}
	for _, m := range messages {
		fields(reflect.TypeOf(m), reflect.TypeOf(m).Name(), got)
	}
	want := known(t, "fields_v5.txt")
	for f := range got {
		if !slices.Contains(want, f) {
			t.Errorf("%s is new: raise version, make spoken leave it out for earlier ones, and write testdata/fields_v%d.txt", f, version+1)
		}
	}
	for _, f := range want {
		if !got[f] {
			t.Errorf("%s is gone: an earlier process sends or expects it", f)
		}
	}
	if version != 5 {
		t.Errorf("testdata/fields_v5.txt is compared at version %d", version)
	}
}

// A process that speaks version 2 gets only the fields of that version, and all that it needs to
// decide.
func TestAPolicyIsSpokenInTheVersionOfTheProcess(t *testing.T) {
	document := policy.Document{Policy: "v1", Level: "strict"}
	document.Filesystem.Tracked, document.Filesystem.Tools = policy.TrackedHide, "deny"
	document.Filesystem.ReadOnly = []string{"**/Makefile"}
	document.Filesystem.Deny = []string{"**/.env"}
	document.Network.Hosts = []policy.Host{{Host: "api.test", Rules: []policy.Rule{{Methods: []string{"GET"}, Do: egress.Allow}}}}
	layers := []policy.Layer{{Kind: "task", Document: document}}

	sent := func(version int) string {
		t.Helper()
		data, err := json.Marshal(spoken(layers, version))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, field := range []string{"tracked", "tools", "read_only"} {
		full := "updateBody.policy[].document.filesystem." + field
		if slices.ContainsFunc(known(t, "fields_v2.txt"), func(f string) bool { return strings.HasPrefix(f, full) }) {
			t.Errorf("control: version 2 has %s", field)
		}
		if !strings.Contains(sent(3), `"`+field+`"`) || strings.Contains(sent(2), `"`+field+`"`) {
			t.Errorf("%s: version 3 %s, version 2 %s", field, sent(3), sent(2))
		}
	}
	for _, kept := range []string{`"api.test"`, `"strict"`, `"**/.env"`} {
		if !strings.Contains(sent(2), kept) {
			t.Errorf("version 2 is not sent %s: %s", kept, sent(2))
		}
	}
	if layers[0].Document.Filesystem.Tracked != policy.TrackedHide {
		t.Error("the caller's own layers are changed")
	}
	added := map[string]bool{}
	for _, f := range known(t, "fields_v3.txt") {
		added[f] = true
	}
	for _, f := range known(t, "fields_v2.txt") {
		if !added[f] {
			t.Errorf("%s of version 2 is not in version 3", f)
		}
		delete(added, f)
	}
	for f := range added {
		if !strings.Contains(f, ".document.filesystem.") {
			t.Errorf("%s is only in version 3, and spoken does not leave it out", f)
		}
	}
}
