package warmpool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/control"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/probe"
)

// requestTimeout bounds one request to a waiting sandbox, and with it what a
// caller loses to one that does not answer.
const requestTimeout = 2 * time.Second

// maxRefusal bounds what a guest may say of why it refuses.
const maxRefusal = 4 << 10

// errNotHeld says that the claimer's policy does not hold inside.
var errNotHeld = errors.New("the claimer's policy does not hold in a waiting sandbox")

// connection is a connection to a guest's control service that is kept open, so that
// a claim need not open one.
type connection struct {
	token     string
	transport *http.Transport
}

func connect(e engine.Engine, id, token string) *connection {
	return &connection{token, control.Keep(func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, id, guestboot.Port) })}
}

// post sends a change and waits until it is in force.
func (l *connection) post(ctx context.Context, path string, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := control.Request(ctx, l.token, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := l.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	switch {
	case res.StatusCode == http.StatusNoContent:
		return nil
	case err != nil:
		return err
	case res.StatusCode == http.StatusConflict && strings.Contains(string(said), probe.Failure):
		return fmt.Errorf("%w: %s", errNotHeld, said)
	}
	return fmt.Errorf("guest answered %s", res.Status)
}

// postpone moves the time at which the sandbox ends by itself.
func (l *connection) postpone(ctx context.Context, end time.Time) error {
	return l.post(ctx, guest.PathUpdate, guest.Update{EndAt: &end})
}

func (l *connection) close() { l.transport.CloseIdleConnections() }
