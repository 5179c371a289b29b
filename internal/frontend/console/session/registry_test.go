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

// entryLog stores entries, or refuses them.
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
	d.Registry = session.NewRegistry(session.Options{Store: st, Record: d.log, Log: slog.New(slog.DiscardHandler)})
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

func (d *registry) in(secret string) (string, session.Session) {
	d.t.Helper()
	cookie, s, err := d.SignIn(d.t.Context(), secret, "127.0.0.1")
	if err != nil {
		d.t.Fatal(err)
	}
	return cookie, s
}

// P42: a link works once, and no stored data gives access.
func TestSignIn(t *testing.T) {
	ctx := t.Context()
	d := open(t, t.TempDir())
	token := d.issue(session.Request{Name: "Ann", Scope: session.Operator, Life: time.Hour})
	if len(token) < 22 {
		t.Errorf("a token of %d characters has less than 128 bits", len(token))
	}
	cookie, s := d.in(token)
	if s.Name != "Ann" || s.Scope != session.Operator || s.ExpiresAt.Sub(s.CreatedAt) != time.Hour {
		t.Errorf("%+v", s)
	}
	if caller := s.Principal(); !caller.Local || caller.Actor() != "console:"+s.ID {
		t.Errorf("%+v", caller)
	}
	if got, err := d.Verify(ctx, cookie); err != nil || got.ID != s.ID || got.Scope != session.Operator {
		t.Errorf("%+v, %v", got, err)
	}
	if _, _, err := d.SignIn(ctx, token, "127.0.0.1"); fault.KindOf(err) != fault.Unauthenticated || fault.CodeOf(err) != "token_invalid" {
		t.Errorf("a second time: %v", err)
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
			t.Error("what opens something is on the disk")
		}
	}
	if len(hosttest.Holding(t, d.dir, s.ID)) == 0 {
		t.Error("the search finds nothing at all")
	}
	if _, err := d.End(ctx, s.Principal().Actor(), s.ID, "signed_out"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Verify(ctx, cookie); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("after the end: %v", err)
	}
	if _, err := d.End(ctx, "local:0", s.ID, "revoked"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a second end: %v", err)
	}
	want := []string{"console.invited local:0 operator", "console.signed_in console:" + s.ID + " operator", "console.signed_out console:" + s.ID + " operator signed_out"}
	if !slices.Equal(d.log.list, want) || !slices.Equal(d.ended, []string{s.ID}) {
		t.Errorf("recorded %q, ended %q", d.log.list, d.ended)
	}
}

// P42: a session survives the process. A sign-in that cannot be recorded does not happen, but a
// sign-out does.
func TestSessionsLast(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	d := open(t, dir)
	cookie, s := d.in(d.issue(session.Request{Scope: session.Admin}))
	unused := d.issue(session.Request{Scope: session.Viewer})
	again := open(t, dir)
	if got, err := again.Verify(ctx, cookie); err != nil || got.ID != s.ID {
		t.Errorf("%+v, %v", got, err)
	}
	again.log.full = errors.New("full")
	if _, _, err := again.Issue(ctx, "local:0", session.Request{Scope: session.Viewer}); err == nil {
		t.Error("a link that is in no record")
	}
	if _, _, err := again.SignIn(ctx, unused, "127.0.0.1"); err == nil {
		t.Error("a sign-in that is in no record")
	}
	if list, err := again.List(ctx); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := again.End(ctx, "local:0", s.ID, "revoked"); err != nil {
		t.Errorf("an end that is in no record: %v", err)
	}
	if _, err := d.Verify(ctx, cookie); err == nil {
		t.Error("the session lives on in another process")
	}
}

func TestTimes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := open(t, dir)
		token := d.issue(session.Request{Scope: session.Viewer, Life: time.Hour})
		late := d.issue(session.Request{Scope: session.Viewer})
		time.Sleep(session.TokenLife - time.Second)
		cookie, s := d.in(token)
		time.Sleep(time.Second)
		if _, _, err := d.SignIn(ctx, late, "127.0.0.1"); fault.CodeOf(err) != "token_invalid" {
			t.Errorf("a late token: %v", err)
		}
		time.Sleep(time.Hour - 2*time.Second)
		if _, err := d.Verify(ctx, cookie); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		if err := d.Sweep(ctx); err != nil || len(d.ended) != 0 {
			t.Errorf("%v, ended %q", err, d.ended)
		}
		time.Sleep(time.Second)
		if _, err := d.Verify(ctx, cookie); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("after its end: %v", err)
		}
		if list, err := d.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		if err := d.Sweep(ctx); err != nil || !slices.Equal(d.ended, []string{s.ID}) {
			t.Errorf("%v, ended %q", err, d.ended)
		}
		if got := d.log.list[len(d.log.list)-1]; got != "console.signed_out server viewer expired" {
			t.Error(got)
		}
	})
}

// P42: the number of guesses per address is bounded, and with it their cost.
func TestTries(t *testing.T) {
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
		d.in(token) // from elsewhere
		time.Sleep(time.Minute)
		if _, _, err := d.SignIn(ctx, strings.Repeat("A", 43), "10.0.0.1"); fault.CodeOf(err) != "token_invalid" {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// S11: a stranger at the same address, such as behind one proxy, cannot lock out a person with a
// valid link, however many invalid links the stranger tries.
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

func TestIssueRefuses(t *testing.T) {
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

func TestScopes(t *testing.T) {
	var zero session.Scope
	if zero.Has(session.Viewer) || zero.Has(zero) || session.Admin.Has(zero) || session.Scope(9).Has(session.Viewer) || session.Viewer.Has(session.Operator) || !session.Admin.Has(session.Viewer) {
		t.Error("a scope has what it must not have, or not what it must")
	}
	if (session.Session{}).Principal().Local {
		t.Error("the zero session sees all sandboxes")
	}
	for _, text := range []string{"", "root", "Admin", "admin "} {
		if _, err := session.ParseScope(text); err == nil {
			t.Errorf("%q is a scope", text)
		}
	}
}
