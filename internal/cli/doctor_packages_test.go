package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/clamd/clamdtest"
	packagestore "github.com/crannog/crannog/internal/packages/store"
)

func TestDoctorNamesTheScanner(t *testing.T) {
	for address, want := range map[string]string{"unix:///nonexistent/clamd.ctl": "cannot be reached", "nowhere": "is no address"} {
		got := checkScanner(t.Context(), address)
		if len(got) != 1 || got[0].Result != resultWarn || !strings.Contains(got[0].Detail, want) || got[0].Fix == "" {
			t.Errorf("%s: got %+v, want a warning with %q and a fix", address, got, want)
		}
	}
	address := clamdtest.Start(t, "AlertExceedsMax yes\n")
	if got := checkScanner(t.Context(), address); len(got) != 1 || got[0].Result != resultOK || !strings.Contains(got[0].Detail, address) || !strings.HasPrefix(got[0].Detail, "ClamAV 1.") {
		t.Errorf("a daemon: got %+v, want its version and address", got)
	}
}

func TestDoctorWarnsAboutOldAdvisories(t *testing.T) {
	state := t.TempDir()
	if err := packagestore.Prepare(state); err != nil {
		t.Fatal(err)
	}
	if got := checkAdvisories(state, time.Now()); len(got) != 0 {
		t.Errorf("without a database: got %+v", got)
	}
	text := `{"id":"GHSA-1","modified":"2026-01-01T00:00:00Z","affected":[{"package":{"ecosystem":"npm","name":"a"},"versions":["1.0.0"]}]}`
	if _, err := advisory.Open(state).ImportFrom(t.Context(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	modified := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{advisory.StaleAfter - time.Hour: resultOK, advisory.StaleAfter + time.Hour: resultWarn} {
		if got := checkAdvisories(state, modified.Add(age)); len(got) != 1 || got[0].Result != want || want == resultWarn && got[0].Fix == "" {
			t.Errorf("after %s: got %+v, want %s", age, got, want)
		}
	}
}
