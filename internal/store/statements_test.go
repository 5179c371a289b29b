package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// A query is prepared once, and later calls use the prepared statement.
func TestStatementsArePreparedOnce(t *testing.T) {
	s := openStore(t)
	selectText := func(query string) (got string) {
		t.Helper()
		if err := s.db.QueryRowContext(t.Context(), query, "x").Scan(&got); err != nil {
			t.Error(err)
		}
		return got
	}
	before := len(s.db.prepared)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := selectText("SELECT ? || 'y'"); got != "xy" {
				t.Errorf("got %q, want xy", got)
			}
		})
	}
	wg.Wait()
	if got := len(s.db.prepared); got != before+1 {
		t.Errorf("the cache has %d statements, and had %d before", got, before)
	}
	// The cache stops growing at its limit.
	for i := range 2 * maxPrepared {
		selectText(fmt.Sprintf("SELECT ? || '%d'", i))
	}
	if got := len(s.db.prepared); got != maxPrepared {
		t.Errorf("the cache has %d statements, want the limit", got)
	}
}

// An invalid statement, or one whose caller has disconnected, is not cached.
func TestFailedStatementsAreNotCached(t *testing.T) {
	s := openStore(t)
	before := len(s.db.prepared)
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
	if len(s.db.prepared) != before {
		t.Errorf("the cache has %d statements, and had %d before", len(s.db.prepared), before)
	}
}

func openStore(t *testing.T) *Store {
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
