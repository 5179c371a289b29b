package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

func TestRefusalReturnsFirstFailure(t *testing.T) {
	if err := engine.Refusal([]engine.Finding{engine.OK("kernel", "new"), engine.Warn("cgroups", "none", "be root")}); err != nil {
		t.Errorf("a warning is returned as an error: %v", err)
	}
	first := engine.Fail("namespaces", "switched off", "switch them on")
	first.Code = "user_namespaces_unavailable"
	err := engine.Refusal([]engine.Finding{engine.OK("kernel", "new"), first, engine.Fail("disk", "full", "")})
	if fault.KindOf(err) != fault.Unsupported || fault.CodeOf(err) != first.Code || fault.HintOf(err) != "switch them on" {
		t.Errorf("Refusal returned %v, want the first failed finding", err)
	}
	if err := engine.Refusal([]engine.Finding{engine.Fail("disk", "full", "")}); fault.CodeOf(err) != "host_unsupported" {
		t.Errorf("without a code: %v", err)
	}
}

// meterOnly is an engine whose only capability is engine.Meter.
type meterOnly struct{ engine.Engine }

func (meterOnly) Usage(context.Context, string) (engine.Usage, error) { return engine.Usage{}, nil }

func (meterOnly) Bounds(context.Context, string) (engine.Limits, error) { return engine.Limits{}, nil }

func TestImplementedListsInterfaces(t *testing.T) {
	if got := engine.Implemented(struct{ engine.Engine }{}); len(got) != 0 {
		t.Errorf("an engine without further interfaces has %v", got)
	}
	if got := engine.Implemented(meterOnly{}); !slices.Equal(got, []engine.Capability{engine.CanMeasure}) {
		t.Errorf("an engine with a Meter has %v, want only that capability", got)
	}
}
