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

// requestTimeout limits one request to a warm sandbox, and so the time that a caller loses if the
// sandbox does not answer.
const requestTimeout = 2 * time.Second

// maxRefusal limits the length of a guest's error message.
const maxRefusal = 4 << 10

// errPolicyNotEnforced is returned if the inspection from inside finds that the owner's policy does
// not hold.
var errPolicyNotEnforced = errors.New("the owner's policy does not hold in a warm sandbox")

// connection is an open connection to a guest's control service, so that an acquisition need not
// open one.
type connection struct {
	token     string
	transport *http.Transport
}

func connect(e engine.Engine, id, token string) *connection {
	return &connection{token, control.Reuse(func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, id, guestboot.Port) })}
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
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	switch {
	case res.StatusCode == http.StatusNoContent:
		return nil
	case err != nil:
		return err
	case res.StatusCode == http.StatusConflict && strings.Contains(string(answer), probe.Failure):
		return fmt.Errorf("%w: %s", errPolicyNotEnforced, answer)
	}
	return fmt.Errorf("guest answered %s", res.Status)
}

// postpone moves the time at which the guest ends the sandbox by itself.
func (l *connection) postpone(ctx context.Context, end time.Time) error {
	return l.post(ctx, guest.PathUpdate, guest.Update{EndAt: &end})
}

func (l *connection) close() { l.transport.CloseIdleConnections() }
