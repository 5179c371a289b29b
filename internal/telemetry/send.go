package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// sender posts OTLP messages to one URL.
type sender struct {
	client  *http.Client
	url     string
	headers map[string]string
	// retryAfter is the pause before the only retry.
	retryAfter time.Duration
}

// send posts a message, and tries once more if the receiver is overloaded or away.
func (s *sender) send(ctx context.Context, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode telemetry: %w", err)
	}
	again, err := s.post(ctx, body)
	if err == nil || !again {
		return err
	}
	select {
	case <-ctx.Done():
		return err
	case <-time.After(s.retryAfter):
	}
	_, err = s.post(ctx, body)
	return err
}

// post reports whether another attempt may succeed.
func (s *sender) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("send telemetry: the endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		// A *url.Error quotes the URL, whose query may contain a key.
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return true, fmt.Errorf("send telemetry to %s: %w", req.URL.Host, err)
	}
	defer res.Body.Close()
	// Reading the rest allows the connection to be used again. The text may quote what was sent.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("send telemetry to %s: status %d", req.URL.Host, res.StatusCode)
}
