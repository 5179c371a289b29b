package console

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
	"github.com/crannog/crannog/internal/frontend/console/session"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
)

// CookieName is the name of the session cookie.
const CookieName = "crannog_console"

// maxCookies bounds the number of checked cookies of that name. A sandbox's preview on a subdomain
// can add its own, which a browser sends first. The bound is above the number of cookies that
// browsers store for a name, so that this cannot lock a user out.
const maxCookies = 200

// sessionView is a session as pages see it.
type sessionView struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Scope         string    `json:"scope"`
	CreatedAt     time.Time `json:"created_at"`
	ExpiresAt     time.Time `json:"expires_at"`
	Version       string    `json:"version"`
	ServerStarted time.Time `json:"server_started"`
	Domain        string    `json:"domain"`
	Engine        engine    `json:"engine"`
}

type engine struct {
	Name     string `json:"name"`
	Boundary string `json:"boundary"`
}

func (c *Console) view(s session.Session) sessionView {
	a := c.o.About
	return sessionView{s.ID, s.Name, s.Scope.String(), s.CreatedAt, s.ExpiresAt, a.Version, a.Started, a.Domain, engine{a.Engine, a.Boundary}}
}

// serveAs serves the user of the request's session, if the session's scope is sufficient.
func (c *Console) serveAs(w http.ResponseWriter, r *http.Request, need session.Scope, to session.Handler) {
	caller, err := c.sessionOf(r)
	if err != nil {
		if len(r.CookiesNamed(CookieName)) > 0 && fault.KindOf(err) == fault.Unauthenticated {
			c.refuse(w, r, audit.Anonymous, err)
			return
		}
		c.fail(w, r, err)
		return
	}
	if !caller.Scope.Has(need) {
		c.refuse(w, r, caller.Principal().Actor(), tooSmall(need, caller))
		return
	}
	if isUpload(r.URL.Path) {
		r = withIdleDeadline(w, r)
	}
	ctx, done := c.openRequests.begin(r.Context(), caller.ID)
	defer done()
	// The session may have ended between the look-up and here.
	if _, err := c.sessionOf(r); err != nil {
		c.fail(w, r, err)
		return
	}
	r = r.WithContext(ctx)
	to.ServeSession(w, r, caller)
}

func tooSmall(need session.Scope, caller session.Session) error {
	return fault.Newf(fault.Denied, "scope_too_small", "this requires the scope %s, but the session has %s", need, caller.Scope).
		WithHint("crannog console --scope " + need.String() + " creates a link with that scope")
}

// sessionOf returns the session of a request.
func (c *Console) sessionOf(r *http.Request) (session.Session, error) {
	cookies := r.CookiesNamed(CookieName)
	err := error(fault.New(fault.Unauthenticated, "signed_out", "this browser is not signed in").WithHint("crannog console creates a sign-in link"))
	for _, cookie := range cookies[:min(len(cookies), maxCookies)] {
		var s session.Session
		if s, err = c.o.Sessions.Verify(r.Context(), cookie.Value); err == nil {
			return s, nil
		}
		if fault.KindOf(err) != fault.Unauthenticated {
			return session.Session{}, err
		}
	}
	return session.Session{}, err
}

// signIn exchanges a link's token for a session.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	token, err := readToken(w, r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	cookie, s, err := c.o.Sessions.SignIn(r.Context(), token, addressOf(r))
	switch fault.CodeOf(err) {
	case "token_invalid", "too_many_tries":
		c.refuse(w, r, audit.Anonymous, err)
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	if old, err := c.sessionOf(r); err == nil {
		// The browser drops its earlier cookie now, so that session could not be signed out later.
		if _, err := c.o.Sessions.End(r.Context(), old.Principal().Actor(), old.ID, "signed_out"); err != nil {
			c.o.Log.Warn("earlier console session not ended", "session", old.ID, "err", err)
		}
	}
	http.SetCookie(w, c.cookie(r, cookie, int(time.Until(s.ExpiresAt)/time.Second)))
	writeJSON(w, http.StatusOK, c.view(s))
}

// cookie returns the cookie for the browser. It is sent only to the console.
func (c *Console) cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: CookieName, Value: value, Path: Path + "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		// A false header could only make the cookie's attributes stricter.
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}

func (c *Console) signedIn(w http.ResponseWriter, r *http.Request) {
	s, err := c.sessionOf(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, c.view(s))
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	s, err := c.sessionOf(r)
	if err == nil {
		_, err = c.o.Sessions.End(r.Context(), s.Principal().Actor(), s.ID, "signed_out")
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	http.SetCookie(w, c.cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// maxSmallBody bounds the body of a sign-in.
const maxSmallBody = 4 << 10

// readToken reads the body of a sign-in. Unauthenticated clients may send it, so it is bounded.
func readToken(w http.ResponseWriter, r *http.Request) (string, error) {
	var in struct {
		Token string `json:"token"`
	}
	err := readJSON(w, r, maxSmallBody, &in)
	return in.Token, err
}

// readJSON reads one JSON object with known fields.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, end := d.Token(); errors.Is(end, io.EOF) {
			return nil
		}
		err = errors.New("data follows the object")
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.Newf(fault.Exhausted, httpstatus.BodyTooLarge, "the body is larger than %d bytes", limit)
	}
	return fault.Wrap(err, fault.Invalid, "invalid_json", "the body is not one JSON object with the fields of this request")
}

// addressOf returns the client's address.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		v1.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A write error means that the client has left.
	_, _ = w.Write(append(data, '\n'))
}

// ownAPI passes a request of the session to the API below /v1/.
func (c *Console) ownAPI(w http.ResponseWriter, r *http.Request, caller session.Session) {
	p := caller.Principal()
	p.Tokenless = true
	in := r.Clone(r.Context())
	in.URL.Path = strings.TrimPrefix(r.URL.Path, apiPath)
	in.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, apiPath)
	in.RequestURI = in.URL.RequestURI()
	// The session is authenticated, and its credentials must not be passed on.
	for _, name := range []string{"Cookie", "Authorization", "X-Api-Key"} {
		in.Header.Del(name)
	}
	c.o.Act(w, in, p)
}

// machineUser returns the local user if a request comes from the machine and not from a browser
// session.
func (c *Console) machineUser(r *http.Request) (sandbox.Principal, error) {
	p, err := c.o.Authenticate(r)
	if err == nil && !p.OnHost() {
		err = fault.New(fault.Denied, "local_only", "only the server's own user may do this").WithHint("run crannog console there")
	}
	return p, err
}
