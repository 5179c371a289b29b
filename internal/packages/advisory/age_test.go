package advisory

import (
	"testing"
	"time"
)

func TestAgeIsThatOfTheNewestAdvisory(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		imported, modified time.Time
		stale              bool
	}{
		"fresh":                            {now, now.Add(-day), false},
		"old data that was imported again": {now, now.Add(-3 * day), true},
		"old import":                       {now.Add(-3 * day), now.Add(-3 * day), true},
		"an advisory of the future":        {now.Add(-3 * day), now.Add(900 * day), true},
		"no times":                         {now, time.Time{}, true},
	} {
		if got := (Info{Imported: c.imported, Modified: c.modified}).Stale(2*day, now); got != c.stale {
			t.Errorf("%s: got %v, want %v", name, got, c.stale)
		}
	}
}
