package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	vaultTimeout = 10 * time.Second
	maxVaultBody = 1 << 20
)

// Remote is a HashiCorp Vault or OpenBao server.
type Remote struct {
	address   *url.URL
	token     string
	namespace string
	client    *http.Client
}

// NewRemote reads VAULT_ADDR, VAULT_TOKEN and VAULT_NAMESPACE. The transport may trust a custom CA.
// If it is nil, the system's CAs are trusted.
func NewRemote(getenv func(string) string, transport http.RoundTripper) (*Remote, error) {
	address, err := url.Parse(getenv("VAULT_ADDR"))
	if err != nil || address.Host == "" || address.User != nil || address.RawQuery != "" {
		return nil, fault.New(fault.Invalid, "vault_address_invalid", "VAULT_ADDR is not the URL of a Vault server").
			WithHint("for example VAULT_ADDR=https://vault.example.com:8200 where the server is started")
	}
	// Without TLS an attacker on the network could read the token and all values. A Vault agent on
	// this machine needs no network.
	if address.Scheme != "https" && (address.Scheme != "http" || !loopback(address.Hostname())) {
		return nil, fault.New(fault.Invalid, "vault_address_invalid", "VAULT_ADDR must be https, or http on a loopback address")
	}
	token := strings.TrimSpace(getenv("VAULT_TOKEN"))
	if token == "" {
		return nil, fault.New(fault.Unavailable, "vault_token_missing", "VAULT_TOKEN is not set in the server's environment")
	}
	if transport == nil {
		transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: vaultTimeout}).DialContext,
			TLSHandshakeTimeout: vaultTimeout, IdleConnTimeout: time.Minute, MaxIdleConns: 2, ForceAttemptHTTP2: true,
		}
	}
	return &Remote{address: address, token: token, namespace: getenv("VAULT_NAMESPACE"), client: &http.Client{
		Transport: transport, Timeout: vaultTimeout,
		// A redirect would send the token to its target.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// fromHashiCorp reads one key of a KV version 2 secret.
func (v *Vault) fromHashiCorp(ctx context.Context, ref string) ([]byte, error) {
	place, key, ok := strings.Cut(ref, "#")
	mount, path, deep := strings.Cut(place, "/")
	if !ok || !deep || key == "" || !plainPath(mount) || !plainPath(path) {
		return nil, fault.New(fault.Invalid, "secret_ref_invalid", "vault: needs mount/path#key").
			WithHint("for example vault:kv/agents/github#token")
	}
	if v.Getenv == nil {
		return nil, fault.New(fault.Unsupported, "vault_not_set_up", "this server reads no environment and so has no Vault")
	}
	remote, err := v.remote()
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Data map[string]json.RawMessage `json:"data"`
		} `json:"data"`
	}
	if err := remote.call(ctx, http.MethodGet, mount+"/data/"+path, nil, &answer); err != nil {
		return nil, err
	}
	var value string
	if json.Unmarshal(answer.Data.Data[key], &value) != nil {
		return nil, fault.Newf(fault.NotFound, "secret_not_found", "the Vault secret %s has no text under %q", place, key)
	}
	return []byte(value), nil
}

// remote reads the environment each time, because tokens are renewed. All Remotes share one
// transport, because otherwise each would leave connections open.
func (v *Vault) remote() (*Remote, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Transport == nil {
		r, err := NewRemote(v.Getenv, nil)
		if err != nil {
			return nil, err
		}
		v.Transport = r.client.Transport
		return r, nil
	}
	return NewRemote(v.Getenv, v.Transport)
}

// plainPath reports whether a path has only plain segments. Others could lead to another endpoint
// of the server.
func plainPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || strings.Trim(segment, ".") == "" {
			return false
		}
		for i := range len(segment) {
			c := segment[i]
			if ('a' > c || c > 'z') && ('A' > c || c > 'Z') && ('0' > c || c > '9') && !strings.ContainsRune("-_.", rune(c)) {
				return false
			}
		}
	}
	return true
}

// call makes one request. Errors contain neither the body of an answer nor the user part of a URL,
// because a server may repeat the token in its answer.
func (r *Remote) call(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("ask Vault: %w", err)
		}
		defer clear(encoded)
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.address.JoinPath("v1", path).String(), content)
	if err != nil {
		return errors.New("ask Vault: the path makes no valid URL")
	}
	req.Header.Set("X-Vault-Token", r.token)
	req.Header.Set("X-Vault-Request", "true")
	if r.namespace != "" {
		req.Header.Set("X-Vault-Namespace", r.namespace)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "vault_unreachable", "the Vault server cannot be reached, or its certificate is not trusted")
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fault.Newf(fault.NotFound, "secret_not_found", "Vault has nothing at %s", path)
	case resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized:
		return fault.Newf(fault.Denied, "vault_denied", "Vault refuses the server's token at %s", path).
			WithHint("the token may have expired, or its policy lacks this path")
	case resp.StatusCode == http.StatusNoContent && into == nil:
		return nil
	case resp.StatusCode != http.StatusOK:
		return fault.Newf(fault.Unavailable, "vault_failed", "Vault answered %d at %s", resp.StatusCode, path)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxVaultBody))
	defer clear(data)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "vault_unreachable", "Vault's answer was cut off")
	}
	if into != nil && json.Unmarshal(data, into) != nil {
		return fault.Newf(fault.Unavailable, "vault_failed", "Vault's answer at %s is malformed", path)
	}
	return nil
}
