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

// A written value is read back as the same value.
func TestWhatIsWrittenIsRead(t *testing.T) {
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
			t.Errorf("%s is read as %#v, written was %#v", kind, got, written)
		}
	}
	// The server's own form of a limit has fewer fields.
	data, err := json.Marshal(payload.Limit{Limit: "memory", Most: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := Of(audit.LimitHit, data); got != (ingest.Limit{Limit: "memory", Most: 1 << 20}) {
		t.Errorf("read as %#v", got)
	}
}

func TestDataOfAnotherFormIsNone(t *testing.T) {
	for kind := range readers {
		for _, data := range []string{"", "[]", `"x"`, `{"n":`} {
			if got := Of(kind, json.RawMessage(data)); got != nil {
				t.Errorf("%s: %q is read as %#v", kind, data, got)
			}
		}
	}
	if got := Of("no.kind", json.RawMessage("{}")); got != nil {
		t.Errorf("an unknown kind is %#v", got)
	}
}
