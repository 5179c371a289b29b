package approval_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/store"
)

// The benchmark covers one approval request, from its creation to the use of the grant.
func BenchmarkAskApproveSpend(b *testing.B) {
	st, err := store.Open(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	s, err := approval.New(approval.Options{
		Store: st, Log: slog.New(slog.DiscardHandler), Lookup: func(string) (string, bool) { return "", true },
		Bounds: approval.Bounds{Open: 10, Recent: 1 << 30},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	cancelled, cancel := context.WithCancel(b.Context())
	cancel()
	n := 0
	for b.Loop() {
		n++
		q := postRequest()
		q.Facts["body"] = fmt.Sprint(n)
		a, err := s.Ask(cancelled, q)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Approve(b.Context(), approval.Caller{Local: true}, a.Approval, "", false); err != nil {
			b.Fatal(err)
		}
		if a, err = s.Ask(b.Context(), q); err != nil || !a.Granted {
			b.Fatalf("use of the grant: got %+v %v, want granted", a, err)
		}
	}
}
