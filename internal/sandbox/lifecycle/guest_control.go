package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/control"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// askGuest sends a request to the control service of a sandbox's guest. The caller must limit how
// much of the answer it reads.
func (e engines) askGuest(ctx context.Context, r sandbox.Row, method, path string, body io.Reader) (*http.Response, error) {
	req, err := control.Request(ctx, r.ControlToken, method, path, body)
	if err != nil {
		return nil, err
	}
	return control.Once(func(ctx context.Context) (net.Conn, error) {
		one, err := e.Of(r.Engine)
		if err != nil {
			return nil, err
		}
		return one.Dial(ctx, r.ID, guestboot.Port)
	}).RoundTrip(req)
}

// updateGuest posts a change to the control service of a sandbox's guest.
func (e engines) updateGuest(ctx context.Context, r sandbox.Row, u guest.Update) error {
	body, err := json.Marshal(u)
	if err != nil {
		return err
	}
	res, err := e.askGuest(ctx, r, http.MethodPost, guest.PathUpdate, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("guest answered %s", res.Status)
	}
	return nil
}
