package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// A query is prepared once, and later calls use the prepared statement.
func TestStatementsArePreparedOnce(t *testing.T) {
	s := opened(t)
	ask := func(query string) (got string) {
		t.Helper()
		if err := s.db.QueryRowContext(t.Context(), query, "x").Scan(&got); err != nil {
			t.Error(err)
		}
		return got
	}
	had := len(s.db.ready)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := ask("SELECT ? || 'y'"); got != "xy" {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
	if got := len(s.db.ready); got != had+1 {
		t.Errorf("%d statements are ready, %d were before", got, had)
	}
	// Queries that run only once do not pile up.
	for i := range 2 * maxReady {
		ask(fmt.Sprintf("SELECT ? || '%d'", i))
	}
	if got := len(s.db.ready); got != maxReady {
		t.Errorf("%d statements are ready", got)
	}
}

// An invalid statement, or one whose caller has disconnected, is not cached.
func TestFailedStatementsAreNotCached(t *testing.T) {
	s := opened(t)
	had := len(s.db.ready)
	var got int
	if err := s.db.QueryRowContext(t.Context(), "SELECT nothing FROM nowhere").Scan(&got); err == nil {
		t.Error("a query of no table succeeds")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.db.QueryContext(gone, "SELECT 1"); err == nil { //nolint:rowserrcheck,sqlclosecheck // there are no rows
		t.Error("a query with a cancelled context succeeds")
	}
	if _, err := s.db.ExecContext(gone, "DELETE FROM sandboxes WHERE id = 'absent'"); err == nil {
		t.Error("a change with a cancelled context succeeds")
	}
	if len(s.db.ready) != had {
		t.Errorf("%d statements are ready, %d were before", len(s.db.ready), had)
	}
}

func opened(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
