package session_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// entryLog stores audit entries, or fails with full.
type entryLog struct {
	audit.Recorder
	mu   sync.Mutex
	list []string
	full error
}

func (b *entryLog) Append(_ context.Context, drafts ...audit.Draft) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full != nil {
		return b.full
	}
	for _, d := range drafts {
		c := d.Data.(payload.Console)
		b.list = append(b.list, strings.Join(strings.Fields(string(d.Kind)+" "+d.Actor+" "+c.Scope+" "+c.Reason), " "))
	}
	return nil
}

type registry struct {
	*session.Registry
	t     *testing.T
	dir   string
	log   *entryLog
	ended []string
}

func open(t *testing.T, dir string) *registry {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	d := &registry{t: t, dir: dir, log: &entryLog{}}
	d.Registry = session.NewRegistry(session.Options{Store: st, Audit: d.log, Log: slog.New(slog.DiscardHandler)})
	d.OnEnd(func(id string) { d.ended = append(d.ended, id) })
	return d
}

func (d *registry) issue(r session.Request) string {
	d.t.Helper()
	secret, _, err := d.Issue(d.t.Context(), "local:0", r)
	if err != nil {
		d.t.Fatal(err)
	}
	return secret
}

func (d *registry) signIn(secret string) (string, session.Session) {
	d.t.Helper()
	cookie, s, err := d.SignIn(d.t.Context(), secret, "127.0.0.1")
	if err != nil {
		d.t.Fatal(err)
	}
	return cookie, s
}

// TestLinkWorksOnce checks that a link works once, and that no stored data gives access (P42).
func TestLinkWorksOnce(t *testing.T) {
	ctx := t.Context()
	d := open(t, t.TempDir())
	token := d.issue(session.Request{Name: "Ann", Scope: session.Operator, Life: time.Hour})
	if len(token) < 22 {
		t.Errorf("a token of %d characters has less than 128 bits", len(token))
	}
	cookie, s := d.signIn(token)
	if s.Name != "Ann" || s.Scope != session.Operator || s.ExpiresAt.Sub(s.CreatedAt) != time.Hour {
		t.Errorf("the session: got %+v", s)
	}
	if caller := s.Principal(); !caller.Local || caller.Actor() != "console:"+s.ID {
		t.Errorf("the principal of the session: got %+v", caller)
	}
	if got, err := d.Verify(ctx, cookie); err != nil || got.ID != s.ID || got.Scope != session.Operator {
		t.Errorf("verified session: got %+v, %v", got, err)
	}
	if _, _, err := d.SignIn(ctx, token, "127.0.0.1"); fault.KindOf(err) != fault.Unauthenticated || fault.CodeOf(err) != "token_invalid" {
		t.Errorf("second sign-in with the link: got %v, want token_invalid", err)
	}
	flip := []byte(cookie)
	flip[3] ^= 1
	for _, wrong := range []string{"", token, cookie[:len(cookie)-1], cookie + "\n", string(flip), strings.Repeat("A", 43), s.ID} {
		if _, err := d.Verify(ctx, wrong); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := d.Verify(ctx, cookie); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{token, cookie} {
		if len(hosttest.Holding(t, d.dir, secret)) > 0 {
			t.Error("the token or the cookie is stored on disk")
		}
	}
	if len(hosttest.Holding(t, d.dir, s.ID)) == 0 {
		t.Error("control: the search does not find the session's ID either")
	}
	if _, err := d.End(ctx, s.Principal().Actor(), s.ID, "signed_out"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Verify(ctx, cookie); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("verify after sign-out: got %v, want Unauthenticated", err)
	}
	if _, err := d.End(ctx, "local:0", s.ID, "revoked"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("second sign-out: got %v, want NotFound", err)
	}
	want := []string{"console.invited local:0 operator", "console.signed_in console:" + s.ID + " operator", "console.signed_out console:" + s.ID + " operator signed_out"}
	if !slices.Equal(d.log.list, want) || !slices.Equal(d.ended, []string{s.ID}) {
		t.Errorf("recorded %q, ended %q", d.log.list, d.ended)
	}
}

// TestSessionSurvivesRestart opens the store in two registries, like two processes. If audit
// entries cannot be written, a sign-in fails, but a sign-out succeeds (P42).
func TestSessionSurvivesRestart(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	d := open(t, dir)
	cookie, s := d.signIn(d.issue(session.Request{Scope: session.Admin}))
	unused := d.issue(session.Request{Scope: session.Viewer})
	again := open(t, dir)
	if got, err := again.Verify(ctx, cookie); err != nil || got.ID != s.ID {
		t.Errorf("verified session after a restart: got %+v, %v", got, err)
	}
	again.log.full = errors.New("full")
	if _, _, err := again.Issue(ctx, "local:0", session.Request{Scope: session.Viewer}); err == nil {
		t.Error("a link was created without an audit entry")
	}
	if _, _, err := again.SignIn(ctx, unused, "127.0.0.1"); err == nil {
		t.Error("a sign-in succeeded without an audit entry")
	}
	if list, err := again.List(ctx); err != nil || len(list) != 1 {
		t.Errorf("list of sessions: got %v, %v", list, err)
	}
	if _, err := again.End(ctx, "local:0", s.ID, "revoked"); err != nil {
		t.Errorf("sign-out without an audit entry: %v", err)
	}
	if _, err := d.Verify(ctx, cookie); err == nil {
		t.Error("the session is still valid in the other registry")
	}
}

// TestTokensAndSessionsExpire checks both one second before and at the end of their lifetime.
func TestTokensAndSessionsExpire(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := open(t, dir)
		token := d.issue(session.Request{Scope: session.Viewer, Life: time.Hour})
		late := d.issue(session.Request{Scope: session.Viewer})
		time.Sleep(session.TokenLife - time.Second)
		cookie, s := d.signIn(token)
		time.Sleep(time.Second)
		if _, _, err := d.SignIn(ctx, late, "127.0.0.1"); fault.CodeOf(err) != "token_invalid" {
			t.Errorf("expired token: got %v, want token_invalid", err)
		}
		time.Sleep(time.Hour - 2*time.Second)
		if _, err := d.Verify(ctx, cookie); err != nil {
			t.Errorf("session one second before its end: %v", err)
		}
		if err := d.Sweep(ctx); err != nil || len(d.ended) != 0 {
			t.Errorf("%v, ended %q", err, d.ended)
		}
		time.Sleep(time.Second)
		if _, err := d.Verify(ctx, cookie); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("expired session: got %v, want Unauthenticated", err)
		}
		if list, err := d.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("list of sessions: got %v, %v", list, err)
		}
		if err := d.Sweep(ctx); err != nil || !slices.Equal(d.ended, []string{s.ID}) {
			t.Errorf("%v, ended %q", err, d.ended)
		}
		if got := d.log.list[len(d.log.list)-1]; got != "console.signed_out server viewer expired" {
			t.Errorf("last audit entry: got %v", got)
		}
	})
}

// TestGuessesAreLimited checks the number of guesses per address and minute (P42).
func TestGuessesAreLimited(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := open(t, dir)
		token := d.issue(session.Request{Scope: session.Viewer})
		for i := range 20 {
			_, _, err := d.SignIn(ctx, strings.Repeat("A", 43), "10.0.0.1")
			if want := map[bool]string{true: "token_invalid", false: "too_many_tries"}[i < 10]; fault.CodeOf(err) != want {
				t.Fatalf("try %d: %v", i, err)
			}
		}
		d.signIn(token) // from another address
		time.Sleep(time.Minute)
		if _, _, err := d.SignIn(ctx, strings.Repeat("A", 43), "10.0.0.1"); fault.CodeOf(err) != "token_invalid" {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// TestS11FailuresLockOutNoValidLink checks that failures of another client at the same address,
// such as behind one proxy, cannot lock out a person with a valid link.
func TestS11FailuresLockOutNoValidLink(t *testing.T) {
	d := open(t, t.TempDir())
	for range 50 {
		if _, _, err := d.SignIn(t.Context(), strings.Repeat("A", 43), "10.0.0.1"); err == nil {
			t.Fatal("a guess signs in")
		}
	}
	_, _, err := d.SignIn(t.Context(), strings.Repeat("A", 43), "10.0.0.1")
	if fault.CodeOf(err) != "too_many_tries" || fault.RetryAfterSeconds(err) == 0 {
		t.Errorf("control: %v", err)
	}
	token := d.issue(session.Request{Scope: session.Viewer})
	if _, _, err := d.SignIn(t.Context(), token, "10.0.0.1"); err != nil {
		t.Errorf("a valid link: %v", err)
	}
	if _, _, err := d.SignIn(t.Context(), token, "10.0.0.1"); fault.CodeOf(err) != "too_many_tries" {
		t.Errorf("the same link again: %v", err)
	}
}

// TestIssueRejectsInvalidRequests checks invalid scopes, lifetimes and names, and too many links.
func TestIssueRejectsInvalidRequests(t *testing.T) {
	d := open(t, t.TempDir())
	for name, r := range map[string]session.Request{
		"no scope": {}, "scope 4": {Scope: 4}, "long": {Scope: session.Viewer, Life: 366 * 24 * time.Hour}, "short": {Scope: session.Viewer, Life: time.Second},
		"negative": {Scope: session.Viewer, Life: -1}, "name": {Scope: session.Viewer, Name: "a\x1b[2J"}, "bidi": {Scope: session.Viewer, Name: "a\u202eb"},
	} {
		if _, _, err := d.Issue(t.Context(), "local:0", r); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 101 {
		_, _, err := d.Issue(t.Context(), "local:0", session.Request{Scope: session.Viewer})
		if (fault.CodeOf(err) == "too_many_tokens") != (i == 100) {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// TestScopeIncludesLowerScopes checks valid, zero and unknown scopes.
func TestScopeIncludesLowerScopes(t *testing.T) {
	var zero session.Scope
	if zero.Has(session.Viewer) || zero.Has(zero) || session.Admin.Has(zero) || session.Scope(9).Has(session.Viewer) || session.Viewer.Has(session.Operator) || !session.Admin.Has(session.Viewer) {
		t.Error("Has returned a wrong result for a scope")
	}
	if (session.Session{}).Principal().Local {
		t.Error("the zero session is a local caller, which sees all sandboxes")
	}
	for _, text := range []string{"", "root", "Admin", "admin "} {
		if _, err := session.ParseScope(text); err == nil {
			t.Errorf("ParseScope(%q) succeeded, want an error", text)
		}
	}
}

// brokenStore is a store on a disk that fails.
type brokenStore struct{ session.Store }

var errDisk = errors.New("input/output error")

func (brokenStore) TakeConsoleToken(context.Context, session.Hash) (session.Token, error) {
	return session.Token{}, errDisk
}
func (brokenStore) ConsoleSession(context.Context, session.Hash) (session.Hash, session.Session, error) {
	return session.Hash{}, session.Session{}, errDisk
}
func (brokenStore) ConsoleSessions(context.Context) ([]session.Session, error)  { return nil, errDisk }
func (brokenStore) RemoveExpiredTokens(context.Context, time.Time) (int, error) { return 0, errDisk }

// An error of the disk is neither a refusal nor a permission.
func TestBrokenStore(t *testing.T) {
	d := session.NewRegistry(session.Options{Store: brokenStore{}, Audit: &entryLog{}, Log: slog.New(slog.DiscardHandler)})
	valid := strings.Repeat("A", 43)
	_, _, issueErr := d.Issue(t.Context(), "local:0", session.Request{Scope: session.Viewer})
	_, _, signInErr := d.SignIn(t.Context(), valid, "127.0.0.1")
	s, verifyErr := d.Verify(t.Context(), valid)
	_, listErr := d.List(t.Context())
	_, endErr := d.End(t.Context(), "local:0", "c1", "revoked")
	for what, err := range map[string]error{"Issue": issueErr, "SignIn": signInErr, "Verify": verifyErr, "List": listErr, "End": endErr, "Sweep": d.Sweep(t.Context())} {
		if !errors.Is(err, errDisk) {
			t.Errorf("%s: got %v, want the error of the disk", what, err)
		}
	}
	if s.Scope.Has(session.Viewer) {
		t.Errorf("Verify returned a session with the scope %s", s.Scope)
	}
}
