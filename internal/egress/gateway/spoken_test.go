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

// messages are the messages that a controller sends and receives after hello.
var messages = []any{attachBody{}, attachReply{}, updateBody{}, updateReply{}, sandboxBody{}, adoptBody{}, adoptReply{}, listReply{}, askBody{}, Event{}}

// fields adds the JSON names of a type's fields to out.
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

// readFields reads the fields of all messages of a version.
func readFields(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// A peer rejects unknown fields, so each new field needs a new version. Otherwise an upgraded
// server could not connect a sandbox while an earlier process runs.
func TestNewFieldRequiresNewVersion(t *testing.T) {
	got := map[string]bool{}
	for _, m := range messages {
		fields(reflect.TypeOf(m), reflect.TypeOf(m).Name(), got)
	}
	want := readFields(t, "fields_v8.txt")
	for f := range got {
		if !slices.Contains(want, f) {
			t.Errorf("%s is new: raise version, make spoken omit it for earlier versions, and write testdata/fields_v%d.txt", f, version+1)
		}
	}
	for _, f := range want {
		if !got[f] {
			t.Errorf("%s is missing, but an earlier process sends or expects it", f)
		}
	}
	if version != 8 {
		t.Errorf("testdata/fields_v8.txt is compared at version %d: compare the file of that version", version)
	}
}

// A process with version 2 gets only the fields of that version. They include all that it needs for
// its decisions.
func TestSpokenOmitsUnknownFields(t *testing.T) {
	document := policy.Document{Policy: "v1", Level: "strict"}
	document.Filesystem.Tracked, document.Filesystem.Tools = policy.TrackedHide, "deny"
	document.Filesystem.ReadOnly = []string{"**/Makefile"}
	document.Filesystem.Deny = []string{"**/.env"}
	document.Network.Hosts = []policy.Host{{Host: "api.test", Rules: []policy.Rule{{Methods: []string{"GET"}, Do: egress.Allow}}}}
	layers := []policy.Layer{{Kind: "task", Document: document}}

	sent := func(version int) string {
		t.Helper()
		data, err := json.Marshal(layersForVersion(layers, version))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, field := range []string{"tracked", "tools", "read_only"} {
		full := "updateBody.policy[].document.filesystem." + field
		if slices.ContainsFunc(readFields(t, "fields_v2.txt"), func(f string) bool { return strings.HasPrefix(f, full) }) {
			t.Errorf("control: version 2 has %s", field)
		}
		if !strings.Contains(sent(3), `"`+field+`"`) || strings.Contains(sent(2), `"`+field+`"`) {
			t.Errorf("field %s: version 3 gets %s, version 2 gets %s", field, sent(3), sent(2))
		}
	}
	for _, kept := range []string{`"api.test"`, `"strict"`, `"**/.env"`} {
		if !strings.Contains(sent(2), kept) {
			t.Errorf("version 2 does not get %s: %s", kept, sent(2))
		}
	}
	if layers[0].Document.Filesystem.Tracked != policy.TrackedHide {
		t.Error("spoken changed the caller's layers")
	}
	added := map[string]bool{}
	for _, f := range readFields(t, "fields_v3.txt") {
		added[f] = true
	}
	for _, f := range readFields(t, "fields_v2.txt") {
		if !added[f] {
			t.Errorf("%s of version 2 is missing in version 3", f)
		}
		delete(added, f)
	}
	for f := range added {
		if !strings.Contains(f, ".document.filesystem.") {
			t.Errorf("%s exists only from version 3, and spoken does not omit it", f)
		}
	}
}
