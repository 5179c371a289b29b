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

// TestConsoleTokenIsUsedOnce checks that of several concurrent callers only one can use a token.
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
					t.Errorf("taken token: got %+v, want %+v", got, want)
				}
			case fault.CodeOf(err) != "token_not_found":
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d callers used the token, want 1", taken.Load())
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
		t.Error("a second session with the same hash is inserted")
	}
	// Another process, such as a restarted server, finds the sessions.
	s = open(t, dir)
	h, got, err := s.ConsoleSession(t.Context(), one)
	if err != nil || h != one || !reflect.DeepEqual(got, first) {
		t.Errorf("ConsoleSession: got %+v, %v; want %+v", got, err, first)
	}
	list, err := s.ConsoleSessions(t.Context())
	if err != nil || !slices.Equal(list, []session.Session{first, second}) {
		t.Errorf("ConsoleSessions: got %+v, %v; want two", list, err)
	}
	for i, want := range []bool{true, false} {
		if ended, err := s.DeleteConsoleSession(t.Context(), "b"); ended != want || err != nil {
			t.Errorf("deletion %d: got %t, %v; want %t", i, ended, err, want)
		}
	}
	if _, _, err := s.ConsoleSession(t.Context(), one); fault.CodeOf(err) != "session_not_found" {
		t.Errorf("deleted session: got error %v, want session_not_found", err)
	}
}

// TestConsoleTokensExpire checks that RemoveExpiredTokens deletes expired tokens and counts the
// others.
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
	if left, err := s.RemoveExpiredTokens(t.Context(), now); left != 2 || err != nil {
		t.Errorf("RemoveExpiredTokens counts %d tokens, %v; want 2", left, err)
	}
	for d, h := range hashes {
		if _, err := s.TakeConsoleToken(t.Context(), h); (err == nil) != (d > 0) {
			t.Errorf("token that expires %v after the sweep: %v", d, err)
		}
	}
}
