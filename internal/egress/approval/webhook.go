package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// Headers of a webhook call.
const (
	// HeaderSignature is "t=SECONDS,v1=HEX": HMAC-SHA256 with the shared
	// secret over the seconds, a dot and the body.
	HeaderSignature = "X-Crannog-Signature"
	// HeaderDelivery identifies the event. A repeated call has the same value, by which the
	// receiver recognises it.
	HeaderDelivery = "X-Crannog-Delivery"
)

// Retries of a webhook call, with waits of 1, 2, 4 and 8 seconds in between. All calls together
// take at most a minute, far less than a request's lifetime.
const (
	callTries   = 5
	callBackoff = time.Second
	callTimeout = 10 * time.Second
)

// Webhook sends every event to an outside service.
type Webhook struct {
	URL    string
	Secret string // signs the calls, so that the receiver can verify the sender
	Log    *slog.Logger
	// Transport is the HTTP transport; nil is the default with the environment's proxy.
	Transport http.RoundTripper
}

// Sign returns the value of HeaderSignature.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	// Writing to a hash never fails.
	_, _ = io.WriteString(mac, seconds+".")
	_, _ = mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Run sends the open requests and then every event until ctx ends or the service closes. An event
// whose calls all fail is logged and skipped: people still find the request in the list.
func (w *Webhook) Run(ctx context.Context, s *Service) error {
	client := &http.Client{
		Transport: w.Transport, Timeout: callTimeout,
		// A redirect could lead the request to another host, even one inside the local network.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The waits between tries must not delay the end of the service.
	go func() {
		select {
		case <-s.pulse.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return s.Watch(ctx, Caller{Local: true}, Query{}, FromNow, func(e Event) error {
		if err := w.deliver(ctx, client, e); err != nil && ctx.Err() == nil {
			w.Log.Warn("approval webhook failed", "approval", e.Approval.ID, "event", e.Type, "err", err)
		}
		return nil
	})
}

func (w *Webhook) deliver(ctx context.Context, client *http.Client, e Event) error {
	body, err := json.Marshal(ShowEvent(e))
	if err != nil {
		return err
	}
	id := e.Approval.ID + "-" + e.Type
	if e.Type == EventVote {
		id += "-" + strconv.Itoa(len(e.Approval.Votes))
	}
	wait := callBackoff
	for try := 1; ; try++ {
		err := w.call(ctx, client, id, body)
		if err == nil {
			return nil
		}
		if _, final := errors.AsType[refused](err); final || try == callTries {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait *= 2
	}
}

// refused is the status of an answer that a retry would not change.
type refused int

func (r refused) Error() string { return fmt.Sprintf("the receiver answered %d", int(r)) }

func (w *Webhook) call(ctx context.Context, client *http.Client, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "crannog")
	req.Header.Set(HeaderDelivery, id)
	req.Header.Set(HeaderSignature, Sign(w.Secret, time.Now(), body))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	// Only the status matters. A little of the body is read so that the connection can be reused.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	if err := resp.Body.Close(); err != nil {
		return err
	}
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("the receiver answered %d", code)
	default:
		return refused(code)
	}
}
