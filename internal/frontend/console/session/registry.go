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
	// DefaultLife is the default lifetime of a session.
	DefaultLife = 12 * time.Hour
	maxLife     = 30 * 24 * time.Hour // of a session
	minLife     = time.Minute
	maxName     = 64 // bytes
	// maxTokens bounds unused tokens, and maxSessions signed-in sessions.
	maxTokens   = 100
	maxSessions = 1000
)

// Hash is the stored hash of a token or a cookie.
type Hash [sha256.Size]byte

// Token is a one-time token as it is stored.
type Token struct {
	Hash    Hash
	Name    string
	Scope   Scope
	Life    time.Duration // of the session that it starts
	Expires time.Time
}

// Store stores tokens and sessions.
type Store interface {
	InsertConsoleToken(ctx context.Context, t Token) error
	// TakeConsoleToken removes a token and returns it, or returns NotFound. Of two concurrent calls
	// with the same token, only one succeeds.
	TakeConsoleToken(ctx context.Context, h Hash) (Token, error)
	InsertConsoleSession(ctx context.Context, h Hash, s Session) error
	// ConsoleSession finds a session by its cookie's hash, or returns NotFound.
	ConsoleSession(ctx context.Context, h Hash) (Hash, Session, error)
	// ConsoleSessions returns all sessions, oldest first.
	ConsoleSessions(ctx context.Context) ([]Session, error)
	// DeleteConsoleSession reports whether the session existed.
	DeleteConsoleSession(ctx context.Context, id string) (bool, error)
	// RemoveExpiredTokens removes expired tokens, and returns the number of remaining ones.
	RemoveExpiredTokens(ctx context.Context, now time.Time) (int, error)
}

// Options configure NewRegistry. All are required.
type Options struct {
	Store Store
	Audit audit.Recorder
	Log   *slog.Logger
}

// Registry signs people in and out of the console. It is safe for concurrent use.
type Registry struct {
	o        Options
	attempts attempts

	mu    sync.Mutex
	onEnd []func(id string)
}

// NewRegistry returns a Registry.
func NewRegistry(o Options) *Registry { return &Registry{o: o} }

// OnEnd adds a function that is called for each session that ends, to close its streams.
func (d *Registry) OnEnd(ended func(id string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onEnd = append(d.onEnd, ended)
}

func (d *Registry) notify(id string) {
	d.mu.Lock()
	list := slices.Clone(d.onEnd)
	d.mu.Unlock()
	for _, ended := range list {
		ended(id)
	}
}

// Request contains the properties of the session that a token creates.
type Request struct {
	Name  string        // for people; "" means none
	Scope Scope         // required
	Life  time.Duration // of the session; zero means DefaultLife
}

// Issue creates a one-time token and returns it. Only its hash is stored.
func (d *Registry) Issue(ctx context.Context, actor string, r Request) (secret string, t Token, err error) {
	r.Life = cmp.Or(r.Life, DefaultLife)
	switch {
	case !r.Scope.Has(Viewer):
		return "", t, fault.New(fault.Invalid, "scope_invalid", "the scope must be viewer, operator or admin")
	case r.Life < minLife || r.Life > maxLife:
		return "", t, fault.Newf(fault.Invalid, "session_life_invalid", "the lifetime of a session must be from %s to %s", minLife, maxLife)
	}
	if err := checkName(r.Name); err != nil {
		return "", t, err
	}
	unused, err := d.o.Store.RemoveExpiredTokens(ctx, time.Now())
	if err != nil {
		return "", t, fmt.Errorf("create a sign-in token: %w", err)
	}
	if unused >= maxTokens {
		return "", t, fault.Newf(fault.Exhausted, "too_many_tokens", "%d console links are not used yet", unused).
			WithHint("they expire after ten minutes")
	}
	secret, hash := newSecret()
	t = Token{Hash: hash, Name: r.Name, Scope: r.Scope, Life: r.Life, Expires: time.Now().Add(TokenLife).UTC().Round(0)}
	err = d.o.Audit.Append(ctx, audit.Draft{Kind: audit.ConsoleInvited, Actor: actor, Data: payload.Console{Name: t.Name, Scope: t.Scope.String(), Seconds: int64(t.Life / time.Second)}})
	if err != nil {
		return "", t, fmt.Errorf("create a sign-in token: %w", err)
	}
	if err := d.o.Store.InsertConsoleToken(ctx, t); err != nil {
		return "", t, fmt.Errorf("create a sign-in token: %w", err)
	}
	return secret, t, nil
}

// SignIn exchanges a token for a session and returns the cookie, of which only the hash is stored.
// from is the client's address. All invalid tokens give the same error.
func (d *Registry) SignIn(ctx context.Context, secret, from string) (cookie string, s Session, err error) {
	t, err := d.takeToken(ctx, secret)
	if fault.KindOf(err) == fault.NotFound {
		// Only failures are counted, so that other people at an address cannot lock out a user
		// there who has a valid link.
		if err := d.attempts.failed(from, time.Now()); err != nil {
			return "", s, err
		}
		return "", s, fault.New(fault.Unauthenticated, "token_invalid", "the link is no longer valid: it can be used once, within ten minutes").
			WithHint("crannog console creates another")
	}
	if err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	list, err := d.List(ctx)
	if err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	if len(list) >= maxSessions {
		return "", s, fault.Newf(fault.Exhausted, "too_many_sessions", "%d sessions are signed in", len(list)).WithHint("crannog console ls; crannog console revoke ID")
	}
	cookie, hash := newSecret()
	now := time.Now().UTC().Round(0)
	s = Session{ID: ids.New("c"), Name: t.Name, Scope: t.Scope, CreatedAt: now, ExpiresAt: now.Add(t.Life)}
	if err := d.o.Audit.Append(ctx, d.draft(audit.ConsoleSignedIn, s.Principal().Actor(), s, "")); err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	if err := d.o.Store.InsertConsoleSession(ctx, hash, s); err != nil {
		return "", s, fmt.Errorf("sign in: %w", err)
	}
	return cookie, s, nil
}

// takeToken removes a token from the store and returns it, or NotFound.
func (d *Registry) takeToken(ctx context.Context, secret string) (Token, error) {
	hash, ok := hashOf(secret)
	if !ok {
		return Token{}, tokenNotFound()
	}
	t, err := d.o.Store.TakeConsoleToken(ctx, hash)
	if err != nil {
		return t, err
	}
	// The look-up already compares hashes, and an attacker cannot choose the hash of a guess. This
	// constant-time comparison protects even if the look-up changes.
	if subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !time.Now().Before(t.Expires) || !t.Scope.Has(Viewer) {
		return Token{}, tokenNotFound()
	}
	return t, nil
}

// Verify returns the session of a cookie, or Unauthenticated.
func (d *Registry) Verify(ctx context.Context, cookie string) (Session, error) {
	hash, ok := hashOf(cookie)
	if !ok {
		return Session{}, signedOut()
	}
	stored, s, err := d.o.Store.ConsoleSession(ctx, hash)
	if fault.KindOf(err) == fault.NotFound {
		return Session{}, signedOut()
	}
	if err != nil {
		return Session{}, fmt.Errorf("find session: %w", err)
	}
	if subtle.ConstantTimeCompare(stored[:], hash[:]) != 1 || !time.Now().Before(s.ExpiresAt) || !s.Scope.Has(Viewer) {
		return Session{}, signedOut()
	}
	return s, nil
}

// List returns the signed-in sessions, oldest first.
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

// End signs a session out. It does so even if the audit entry cannot be written, because a full
// disk must not prevent a sign-out.
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
	d.notify(s.ID)
	if !there {
		return nil // another call was faster, and wrote the entry
	}
	if err := d.o.Audit.Append(ctx, d.draft(audit.ConsoleSignedOut, actor, s, reason)); err != nil {
		d.o.Log.Error("sign-out not in the audit log", "session", s.ID, "err", err)
	}
	return nil
}

// Sweep ends expired sessions, and removes expired tokens.
func (d *Registry) Sweep(ctx context.Context) error {
	_, err := d.o.Store.RemoveExpiredTokens(ctx, time.Now())
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

// newSecret returns a random secret for a token or a cookie, and its hash.
func newSecret() (string, Hash) {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // rand.Read never fails: it ends the program instead
	text := base64.RawURLEncoding.EncodeToString(random)
	return text, sha256.Sum256([]byte(text))
}

// hashOf returns the stored hash of a secret, if the secret has a valid format.
func hashOf(secret string) (Hash, bool) {
	random, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(random) != secretBytes || len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return Hash{}, false // the length of the text is checked too, because the decoder ignores line breaks
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

func tokenNotFound() error { return fault.New(fault.NotFound, "token_not_found", "no such token") }

func signedOut() error {
	return fault.New(fault.Unauthenticated, "signed_out", "this browser is not signed in").WithHint("crannog console creates a sign-in link")
}
