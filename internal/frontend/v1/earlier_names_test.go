package v1

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
)

type otherCalls = Changes

// keptChanges contains the change set of a sandbox that has ended.
type keptChanges struct{ otherCalls }

func (keptChanges) Changes(context.Context, sandbox.Principal, string, sandbox.ChangesRequest) (sandbox.ChangeSet, error) {
	return sandbox.ChangeSet{Files: 2, Retained: true}, nil
}

// A client of an earlier version knows only the field names linked, kept and looked.
func TestEarlierFieldNamesAreSent(t *testing.T) {
	r := newRig(t)
	var created struct {
		ID      string `json:"id"`
		Network *struct {
			Attached, Linked *bool
		} `json:"network"`
	}
	// As the client of that version wrote it.
	body := `{"name":"old","template":"base","timeout_seconds":60,"metadata":{"a":"b"},"env":{"K":"v"},"limits":{"pids":64},"access":{"net":"none"}}`
	if code, p := r.call("POST", "/v1/sandboxes", body, &created); code != 201 {
		t.Fatalf("POST /v1/sandboxes: got %d %+v", code, p)
	}
	if n := created.Network; n == nil || n.Linked == nil || n.Attached == nil || *n.Linked || *n.Attached {
		t.Errorf("network of the sandbox: got %+v", n)
	}
	h := &changeHandlers{service: keptChanges{}}
	out, err := h.changes(t.Context(), sandbox.Principal{}, &changesInput{})
	if err != nil {
		t.Fatal(err)
	}
	attached := sandbox.Sandbox{Workspace: "/w", Access: sandbox.Access{Net: sandbox.NetDev}}
	attached.Keys.Looked, attached.Keys.Left = 7, 1
	for _, c := range []struct {
		answer        any
		name, earlier string
		want          any
	}{
		{toNetwork(attached), "attached", "linked", true},
		{out.Body, "retained", "kept", true},
		{toKeys(attached), "inspected", "looked", 7.0},
	} {
		text, err := json.Marshal(c.answer)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil || fields[c.name] != c.want || fields[c.earlier] != c.want {
			t.Errorf("%s and %s are not both %v in %s", c.name, c.earlier, c.want, text)
		}
	}
}
