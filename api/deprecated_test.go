package api

import (
	"encoding/json"
	"testing"
)

// A client reads both names of a field, from servers of this version and of earlier ones, and a
// program that uses the earlier Go name sees the value too.
func TestEarlierNamesOfFieldsAreRead(t *testing.T) {
	for _, name := range []string{"attached", "linked"} {
		var n Network
		if err := json.Unmarshal([]byte(`{"net":"dev","`+name+`":true}`), &n); err != nil || !n.Attached || !n.Linked || n.Net != "dev" {
			t.Errorf("Unmarshal with the field %s: got %+v, error %v", name, n, err)
		}
	}
	for _, name := range []string{"retained", "kept"} {
		var c Changes
		if err := json.Unmarshal([]byte(`{"files":2,"`+name+`":true}`), &c); err != nil || !c.Retained || !c.Kept || c.Files != 2 {
			t.Errorf("Unmarshal with the field %s: got %+v, error %v", name, c, err)
		}
	}
	for _, name := range []string{"inspected", "looked"} {
		var k WorkspaceKeys
		if err := json.Unmarshal([]byte(`{"count":1,"`+name+`":7}`), &k); err != nil || k.Inspected != 7 || k.Looked != 7 || k.Count != 1 {
			t.Errorf("Unmarshal with the field %s: got %+v, error %v", name, k, err)
		}
	}
	// The control: absent fields stay as they are.
	var n Network
	if err := json.Unmarshal([]byte(`{"net":"none"}`), &n); err != nil || n.Attached || n.Linked {
		t.Errorf("Unmarshal without the field: got %+v, error %v", n, err)
	}
	if err := json.Unmarshal([]byte(`{"net":1}`), &n); err == nil {
		t.Error("a network whose name is a number is read")
	}
}
