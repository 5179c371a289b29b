package secrets

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Transit is a Keeper whose key never leaves a HashiCorp Vault or OpenBao: its transit engine wraps
// and unwraps data keys. No secret can be opened without that server.
type Transit struct {
	remote     *Remote
	mount, key string
}

// NewTransit returns a Transit for the engine's mount and the key in it.
func NewTransit(remote *Remote, mount, key string) (*Transit, error) {
	if !plainPath(mount) || !plainPath(key) || strings.Contains(key, "/") {
		return nil, fault.New(fault.Invalid, "transit_invalid", "a transit key is named mount/key").WithHint("for example transit/crannog")
	}
	return &Transit{remote, mount, key}, nil
}

// Create does nothing, because Vault's operator creates the key.
func (t *Transit) Create(context.Context) error { return nil }

// Hold does nothing, because data that was wrapped with an earlier version of the key can be
// unwrapped until Vault's operator retires that version.
func (t *Transit) Hold(context.Context) (func(), error) { return func() {}, nil }

// Wrap does not send bound, because not all versions of the engine support it. The sealed value
// itself is bound to the same context.
func (t *Transit) Wrap(ctx context.Context, dataKey, _ []byte) ([]byte, string, error) {
	var answer struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	body := map[string]string{"plaintext": base64.StdEncoding.EncodeToString(dataKey)}
	if err := t.remote.call(ctx, http.MethodPost, t.mount+"/encrypt/"+t.key, body, &answer); err != nil {
		return nil, "", err
	}
	by, err := t.name(answer.Data.Ciphertext)
	return []byte(answer.Data.Ciphertext), by, err
}

// Unwrap rejects a data key that another key wrapped, without a request to Vault.
func (t *Transit) Unwrap(ctx context.Context, by string, wrapped, _ []byte) ([]byte, error) {
	if name, err := t.name(string(wrapped)); err != nil || name != by {
		return nil, fault.Newf(fault.Unavailable, "secrets_key_wrong", "this secret is sealed with the key %q, and not with Vault's %s/%s", by, t.mount, t.key).
			WithHint("start the server with the key that sealed it")
	}
	var answer struct {
		Data struct {
			Plaintext string `json:"plaintext"`
		} `json:"data"`
	}
	body := map[string]string{"ciphertext": string(wrapped)}
	if err := t.remote.call(ctx, http.MethodPost, t.mount+"/decrypt/"+t.key, body, &answer); err != nil {
		return nil, err
	}
	dataKey, err := base64.StdEncoding.DecodeString(answer.Data.Plaintext)
	if err != nil || len(dataKey) != keySize {
		return nil, errors.New("a data key that Vault unwrapped has the wrong form")
	}
	return dataKey, nil
}

// Rotate makes Vault create a new version of the key. Earlier versions remain until Vault's
// operator raises min_decryption_version.
func (t *Transit) Rotate(ctx context.Context, rewrap func(by string) error) error {
	if err := t.remote.call(ctx, http.MethodPost, t.mount+"/keys/"+t.key+"/rotate", struct{}{}, nil); err != nil {
		return err
	}
	_, by, err := t.Wrap(ctx, make([]byte, keySize), nil)
	if err != nil {
		return err
	}
	return rewrap(by)
}

// name returns the name and version of the key for a ciphertext of the form "vault:v3:…".
func (t *Transit) name(ciphertext string) (string, error) {
	parts := strings.SplitN(ciphertext, ":", 3)
	if len(parts) == 3 && parts[0] == "vault" {
		if n, err := strconv.Atoi(strings.TrimPrefix(parts[1], "v")); err == nil && n > 0 {
			return "transit:" + t.mount + "/" + t.key + ":v" + strconv.Itoa(n), nil
		}
	}
	return "", errors.New("the transit engine of Vault returned no ciphertext of the known form")
}
