package entrydata

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

// TestDecodeOfEachKind checks that the encoded data of each kind is decoded to the same value.
func TestDecodeOfEachKind(t *testing.T) {
	exit := 3
	for kind, written := range map[audit.Kind]any{
		audit.SandboxStarted: payload.Started{Name: "a", Template: "host", Engine: "fake", Level: "standard", Net: "deny"},
		audit.SandboxEnded:   payload.Ended{Reason: "killed", LastMS: 7},
		audit.PolicyChanged:  payload.Policy{New: "sha256:b", Old: "sha256:a"},
		audit.CommandStarted: observe.Started{N: 1, How: "command", Argv: []string{"ls", "-l"}},
		audit.CommandEnded:   observe.Ended{N: 1, Exit: &exit, Hit: "oom", DurationMS: 1.5},
		audit.Flow:           egress.Record{Seq: 4, Host: "a.example", Port: 443, Decision: egress.Decision{Effect: egress.Deny, Rule: "r"}},
		audit.Exec:           ingest.Exec{PID: 5, Program: "/bin/ls", Argv: []string{"ls"}},
		audit.Exit:           ingest.Exit{PID: 5, Code: 1, TookNS: 8},
		audit.File:           ingest.File{Path: "/a", Op: "created", Size: 2},
		audit.LimitHit:       ingest.Limit{Limit: "pids", Most: 10},
	} {
		data, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(kind, data); !reflect.DeepEqual(got, written) {
			t.Errorf("%s: got %#v, want %#v", kind, got, written)
		}
	}
	// A limit entry of the server has fewer fields.
	data, err := json.Marshal(payload.Limit{Limit: "memory", Most: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := Of(audit.LimitHit, data); got != (ingest.Limit{Limit: "memory", Most: 1 << 20}) {
		t.Errorf("limit entry of the server: got %#v", got)
	}
}

// TestInvalidDataIsNil checks data in another format, and an unknown kind.
func TestInvalidDataIsNil(t *testing.T) {
	for kind := range decoders {
		for _, data := range []string{"", "[]", `"x"`, `{"n":`} {
			if got := Of(kind, json.RawMessage(data)); got != nil {
				t.Errorf("%s: decoded %q to %#v, want nil", kind, data, got)
			}
		}
	}
	if got := Of("no.kind", json.RawMessage("{}")); got != nil {
		t.Errorf("unknown kind: got %#v, want nil", got)
	}
}
