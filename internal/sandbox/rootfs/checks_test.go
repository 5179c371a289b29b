package rootfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/probe"
)

// TestBootErrorExplainsFinding checks that a finding from inside reaches the caller, shortened and
// without terminal controls. Any other failure stays an internal error.
func TestBootErrorExplainsFinding(t *testing.T) {
	found := fmt.Errorf("create: guest: %w", errors.New(probe.Failure+": /etc/x can be read\x1b[2J\nsecond "+strings.Repeat("ä", 500)))
	err := explainFinding(found)
	text := fault.PublicText(err)
	if fault.CodeOf(err) != "policy_not_effective" || !errors.Is(err, found) || !strings.Contains(text, "/etc/x can be read") {
		t.Errorf("error of a finding: got %q (%v)", text, err)
	}
	if strings.ContainsAny(text, "\x1b\n") || len(text) > 600 || strings.ToValidUTF8(text, "?") != text {
		t.Errorf("public text is not clean: %q", text)
	}
	old := fmt.Errorf("restore: guest: %w", errors.New(guest.Unknown+` "pids"`))
	if got := explainOldGuest(old); fault.CodeOf(got) != "snapshot_guest" || !errors.Is(got, old) || fault.HintOf(got) == "" {
		t.Errorf("error of an old guest: got %v", got)
	}
	other := errors.New("create: no such file")
	if got := explainOldGuest(explainFinding(other)); !errors.Is(got, other) || fault.PublicText(got) != "internal error" {
		t.Errorf("another error: got %v, want it unchanged", got)
	}
}
