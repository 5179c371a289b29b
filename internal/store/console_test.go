package store_test

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// A token signs in once, even if several callers use it at the same time.
func TestConsoleTokenIsUsedOnce(t *testing.T) {
	s := open(t, t.TempDir())
	at := time.Unix(1000, 7)
	want := session.Token{Hash: sha256.Sum256([]byte("token")), Name: "me", Scope: session.Viewer, Life: time.Hour, Expires: at}
	if err := s.InsertConsoleToken(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got, err := s.TakeConsoleToken(t.Context(), want.Hash)
			switch {
			case err == nil:
				taken.Add(1)
				if got.Hash != want.Hash || got.Name != "me" || got.Scope != session.Viewer || got.Life != time.Hour || !got.Expires.Equal(at) {
					t.Errorf("got %+v", got)
				}
			case fault.CodeOf(err) != "token_not_found":
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d callers got it", taken.Load())
	}
}

func TestConsoleSessions(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	one, two := session.Hash(sha256.Sum256([]byte("1"))), session.Hash(sha256.Sum256([]byte("2")))
	first := session.Session{ID: "b", Name: "me", Scope: session.Admin, CreatedAt: time.Unix(1, 0).UTC(), ExpiresAt: time.Unix(9, 0).UTC()}
	second := session.Session{ID: "a", Name: "you", Scope: session.Viewer, CreatedAt: time.Unix(2, 0).UTC(), ExpiresAt: time.Unix(9, 0).UTC()}
	if err := errors.Join(s.InsertConsoleSession(t.Context(), two, second), s.InsertConsoleSession(t.Context(), one, first)); err != nil {
		t.Fatal(err)
	}
	if err := s.InsertConsoleSession(t.Context(), one, second); err == nil {
		t.Error("a cookie has two sessions")
	}
	// Another process, such as a restarted server, finds them.
	s = open(t, dir)
	h, got, err := s.ConsoleSession(t.Context(), one)
	if err != nil || h != one || !reflect.DeepEqual(got, first) {
		t.Errorf("%+v %v", got, err)
	}
	list, err := s.ConsoleSessions(t.Context())
	if err != nil || !slices.Equal(list, []session.Session{first, second}) {
		t.Errorf("%+v %v", list, err)
	}
	for i, want := range []bool{true, false} {
		if ended, err := s.DeleteConsoleSession(t.Context(), "b"); ended != want || err != nil {
			t.Errorf("end %d: %t %v", i, ended, err)
		}
	}
	if _, _, err := s.ConsoleSession(t.Context(), one); fault.CodeOf(err) != "session_not_found" {
		t.Errorf("an ended session: %v", err)
	}
}

// Expired tokens go, and the number of the others bounds how many there may be.
func TestConsoleTokensExpire(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Unix(1000, 0)
	hashes := map[time.Duration]session.Hash{}
	for _, d := range []time.Duration{-time.Hour, 0, time.Nanosecond, time.Hour} {
		hashes[d] = sha256.Sum256([]byte(d.String()))
		if err := s.InsertConsoleToken(t.Context(), session.Token{Hash: hashes[d], Name: "n", Scope: session.Viewer, Expires: now.Add(d)}); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := s.SweepConsole(t.Context(), now); left != 2 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	for d, h := range hashes {
		if _, err := s.TakeConsoleToken(t.Context(), h); (err == nil) != (d > 0) {
			t.Errorf("one that ends %v later: %v", d, err)
		}
	}
}
