package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/ids"
)

const (
	// TokenLife is how long a one-time token can be used.
	TokenLife = 10 * time.Minute
	// DefaultLife is a session's life where none was asked for.
	DefaultLife = 12 * time.Hour
	maxLife     = 30 * 24 * time.Hour
	minLife     = time.Minute
	maxName     = 64
	// mostTokens bounds tokens that wait to be used, and mostSessions those
	// who are signed in.
	mostTokens   = 100
	mostSessions = 1000
)

// Hash is what is kept of a token or a cookie.
type Hash [sha256.Size]byte

// Token is a one-time token as it is kept.
type Token struct {
	Hash    Hash
	Name    string
	Scope   Scope
	Life    time.Duration // of the session that it becomes
	Expires time.Time
}

// Store keeps tokens and sessions.
type Store interface {
	InsertConsoleToken(ctx context.Context, t Token) error
	// TakeConsoleToken drops a token and returns it, or is NotFound. Of two
	// who take the same, one gets it.
	TakeConsoleToken(ctx context.Context, h Hash) (Token, error)
	InsertConsoleSession(ctx context.Context, h Hash, s Session) error
	// ConsoleSession finds a session by its cookie's hash, or is NotFound.
	ConsoleSession(ctx context.Context, h Hash) (Hash, Session, error)
	// ConsoleSessions returns all sessions, oldest first.
	ConsoleSessions(ctx context.Context) ([]Session, error)
	// DeleteConsoleSession reports whether the session was there.
	DeleteConsoleSession(ctx context.Context, id string) (bool, error)
	// SweepConsole drops tokens that cannot be used any more, and says how many
	// are left.
	SweepConsole(ctx context.Context, now time.Time) (int, error)
}

// Options are what a Registry stands on. All are required.
type Options struct {
	Store  Store
	Record audit.Recorder
	Log    *slog.Logger
}

// Registry signs people in and out. It is safe for concurrent use.
type Registry struct {
	o     Options
	tries tries

	mu    sync.Mutex
	ended []func(id string)
}

// NewDesk makes a Registry.
func NewDesk(o Options) *Registry { return &Registry{o: o} }

// OnEnd names what is told of each session that ends, to cut what it holds.
func (d *Registry) OnEnd(ended func(id string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = append(d.ended, ended)
}

func (d *Registry) tell(id string) {
	d.mu.Lock()
	list := slices.Clone(d.ended)
	d.mu.Unlock()
	for _, ended := range list {
		ended(id)
	}
}

// Request is what somebody asks of a token.
type Request struct {
	Name  string        // for people; "" is none
	Scope Scope         // must be said
	Life  time.Duration // of the session; zero is DefaultLife
}

// Issue makes a one-time token and returns it. Only its hash is kept.
func (d *Registry) Issue(ctx context.Context, actor string, r Request) (secret string, t Token, err error) {
	r.Life = cmp.Or(r.Life, DefaultLife)
	switch {
	case !r.Scope.Has(Viewer):
		return "", t, fault.New(fault.Invalid, "scope_invalid", "a scope is viewer, operator or admin")
	case r.Life < minLife || r.Life > maxLife:
		return "", t, fault.Newf(fault.Invalid, "session_life_invalid", "a session lives from %s to %s", minLife, maxLife)
	}
	if err := checkName(r.Name); err != nil {
		return "", t, err
	}
	waiting, err := d.o.Store.SweepConsole(ctx, time.Now())
	if err != nil {
		return "", t, fmt.Errorf("make a token: %w", err)
	}
	if waiting >= mostTokens {
		return "", t, fault.Newf(fault.Exhausted, "too_many_tokens", "%d tokens of the console wait to be used", waiting).
			WithHint("they are gone after ten minutes")
	}
	secret, hash := newSecret()
	t = Token{Hash: hash, Name: r.Name, Scope: r.Scope, Life: r.Life, Expires: time.Now().Add(TokenLife).UTC().Round(0)}
	err = d.o.Record.Append(ctx, audit.Draft{Kind: audit.ConsoleInvited, Actor: actor, Data: payload.Console{Name: t.Name, Scope: t.Scope.String(), Seconds: int64(t.Life / time.Second)}})
	if err != nil {
		return "", t, fmt.Errorf("make a token: %w", err)
	}
	if err := d.o.Store.InsertConsoleToken(ctx, t); err != nil {
		return "", t, fmt.Errorf("make a token: %w", err)
	}
	return secret, t, nil
}

// SignIn makes a session of a token and returns its cookie, of which only the
// hash is kept. From is the address that asks. All that is wrong with a token
// gives the same error.
func (d *Registry) SignIn(ctx context.Context, secret, from string) (cookie string, s Session, err error) {
	t, err := d.take(ctx, secret)
	if fault.KindOf(err) == fault.NotFound {
		// Failures alone are counted: strangers at an address must not lock out
		// somebody there who has a valid link.
		if err := d.tries.failed(from, time.Now()); err != nil {
			return "", s, err
		}
		return "", s, fault.New(fault.Unauthenticated, "token_invalid", "the link is not valid any more: each can be used once, for ten minutes").
			WithHint("crannog console makes another")
	}
	if err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	list, err := d.List(ctx)
	if err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	if len(list) >= mostSessions {
		return "", s, fault.Newf(fault.Exhausted, "too_many_sessions", "%d sessions are signed in", len(list)).WithHint("crannog console ls; crannog console revoke ID")
	}
	cookie, hash := newSecret()
	now := time.Now().UTC().Round(0)
	s = Session{ID: ids.New("c"), Name: t.Name, Scope: t.Scope, CreatedAt: now, ExpiresAt: now.Add(t.Life)}
	if err := d.o.Record.Append(ctx, d.draft(audit.ConsoleSignedIn, s.Principal().Actor(), s, "")); err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	if err := d.o.Store.InsertConsoleSession(ctx, hash, s); err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	return cookie, s, nil
}

func (d *Registry) take(ctx context.Context, secret string) (Token, error) {
	hash, ok := hashOf(secret)
	if !ok {
		return Token{}, unknown()
	}
	t, err := d.o.Store.TakeConsoleToken(ctx, hash)
	if err != nil {
		return t, err
	}
	// The look-up compares hashes, and an attacker cannot choose the hash of a guess;
	// this holds if the look-up is ever wider than that.
	if subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !time.Now().Before(t.Expires) || !t.Scope.Has(Viewer) {
		return Token{}, unknown()
	}
	return t, nil
}

// Who is whose a cookie is, or Unauthenticated.
func (d *Registry) Who(ctx context.Context, cookie string) (Session, error) {
	hash, ok := hashOf(cookie)
	if !ok {
		return Session{}, signedOut()
	}
	kept, s, err := d.o.Store.ConsoleSession(ctx, hash)
	if fault.KindOf(err) == fault.NotFound {
		return Session{}, signedOut()
	}
	if err != nil {
		return Session{}, fmt.Errorf("find session: %w", err)
	}
	if subtle.ConstantTimeCompare(kept[:], hash[:]) != 1 || !time.Now().Before(s.ExpiresAt) || !s.Scope.Has(Viewer) {
		return Session{}, signedOut()
	}
	return s, nil
}

// List returns the sessions that are signed in, oldest first.
func (d *Registry) List(ctx context.Context) ([]Session, error) {
	all, err := d.o.Store.ConsoleSessions(ctx)
	if err != nil {
		return nil, err
	}
	list := all[:0]
	for _, s := range all {
		if time.Now().Before(s.ExpiresAt) {
			list = append(list, s)
		}
	}
	return list, nil
}

// End signs a session out. It ends even if the record cannot say so: a full
// disk must not keep somebody signed in.
func (d *Registry) End(ctx context.Context, actor, id, reason string) (Session, error) {
	all, err := d.o.Store.ConsoleSessions(ctx)
	if err != nil {
		return Session{}, fmt.Errorf("end session: %w", err)
	}
	for _, s := range all {
		if s.ID == id {
			return s, d.end(ctx, actor, s, reason)
		}
	}
	return Session{}, fault.New(fault.NotFound, "session_not_found", "there is no such session").WithHint("crannog console ls")
}

func (d *Registry) end(ctx context.Context, actor string, s Session, reason string) error {
	there, err := d.o.Store.DeleteConsoleSession(ctx, s.ID)
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	d.tell(s.ID)
	if !there {
		return nil // another was faster, and wrote it
	}
	if err := d.o.Record.Append(ctx, d.draft(audit.ConsoleSignedOut, actor, s, reason)); err != nil {
		d.o.Log.Error("sign-out not in the audit log", "session", s.ID, "err", err)
	}
	return nil
}

// Sweep ends sessions whose time is up, and removes tokens that were not used in time.
func (d *Registry) Sweep(ctx context.Context) error {
	_, err := d.o.Store.SweepConsole(ctx, time.Now())
	all, listed := d.o.Store.ConsoleSessions(ctx)
	errs := []error{err, listed}
	for _, s := range all {
		if !time.Now().Before(s.ExpiresAt) {
			errs = append(errs, d.end(ctx, "server", s, "expired"))
		}
	}
	return errors.Join(errs...)
}

func (d *Registry) draft(kind audit.Kind, actor string, s Session, reason string) audit.Draft {
	return audit.Draft{Kind: kind, Actor: actor, Data: payload.Console{
		Session: s.ID, Name: s.Name, Scope: s.Scope.String(), ExpiresAt: s.ExpiresAt.Format(time.RFC3339), Reason: reason,
	}}
}

// secretBytes is the length of a secret: 256 bits cannot be guessed.
const secretBytes = 32

// newSecret makes a token or a cookie.
func newSecret() (string, Hash) {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // it ends the program rather than fail
	text := base64.RawURLEncoding.EncodeToString(random)
	return text, sha256.Sum256([]byte(text))
}

// hashOf is what is kept of a secret, if it has the form of one.
func hashOf(secret string) (Hash, bool) {
	random, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(random) != secretBytes || len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return Hash{}, false // the decoder passes over line ends
	}
	return sha256.Sum256([]byte(secret)), true
}

func checkName(name string) error {
	if len(name) > maxName || !text.Printable(name) {
		return nameInvalid()
	}
	return nil
}

func nameInvalid() error {
	return fault.Newf(fault.Invalid, "session_name_invalid", "a session's name is at most %d bytes of printable text", maxName)
}

func unknown() error { return fault.New(fault.NotFound, "token_not_found", "no such token") }

func signedOut() error {
	return fault.New(fault.Unauthenticated, "signed_out", "this browser is not signed in").WithHint("crannog console makes a link to sign in by")
}
