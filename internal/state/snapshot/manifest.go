package snapshot

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	manifestFormat   = 2
	maxManifestBytes = 8 << 10
	// maxBytes exceeds the memory and file system of any sandbox, and is far below an overflow of
	// sums.
	maxBytes = 1 << 46
)

// manifest lists the files of an image.
type manifest struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`
	Made   int64  `json:"made"` // nanoseconds since 1970
	Parts  []part `json:"parts,omitempty"`
	Bulk   bulk   `json:"bulk"`
}

// part is a small file.
type part struct {
	Name   string `json:"name,omitempty"` // none in the first format
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// bulk is the big file. Until it has been read, Seen and Boot identify it; afterwards, Tree.
type bulk struct {
	Name  string    `json:"name"`
	Kind  Kind      `json:"kind,omitempty"` // none in the first format
	Bytes int64     `json:"bytes"`
	Seen  *identity `json:"seen,omitempty"`
	Boot  string    `json:"boot,omitempty"`
	Tree  string    `json:"tree,omitempty"`
}

// complete reports whether the big file was read and synced.
func (m manifest) complete() bool { return m.Bulk.Tree != "" }

func (m manifest) bytes() int64 {
	n := m.Bulk.Bytes
	for _, p := range m.Parts {
		n += p.Bytes
	}
	return n
}

// newSum returns the key of a new image.
func newSum() string {
	var key [sha256.Size]byte
	// rand.Read never returns an error: it ends the program instead.
	rand.Read(key[:])
	return hex.EncodeToString(key[:])
}

// seal encodes a manifest with a MAC under the key in the image's Sum.
func (m manifest) seal(sum string) ([]byte, error) { return seal(m, sum) }

func seal(manifest any, sum string) ([]byte, error) {
	body, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	mac, err := authenticate(sum, body)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(hex.EncodeToString(mac)), '\n'), body...), nil
}

func authenticate(sum string, body []byte) ([]byte, error) {
	key, err := hex.DecodeString(sum)
	if err != nil || len(key) != sha256.Size {
		// An empty or short key could be guessed.
		return nil, errors.New("not a sum of an image")
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("crannog image manifest\n"))
	h.Write(body)
	return h.Sum(nil), nil
}

// openManifest decodes and authenticates a manifest.
func openManifest(data []byte, sum string, declared ...[]Part) (manifest, error) {
	head, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok {
		return manifest{}, errors.New("manifest: no authentication")
	}
	want, err := authenticate(sum, body)
	if err != nil {
		return manifest{}, err
	}
	if !hmac.Equal(head, []byte(hex.EncodeToString(want))) {
		return manifest{}, errors.New("manifest: not the one that was committed")
	}
	return decodeManifest(data, declared...)
}

// decodeManifest decodes without authentication, for data that needs no trust: parents and sizes.
// declared are the declarations of writers, which name the parts of manifests in the first format.
func decodeManifest(data []byte, declared ...[]Part) (manifest, error) {
	_, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || len(data) > maxManifestBytes {
		return manifest{}, errors.New("manifest: unknown format")
	}
	var of struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(body, &of); err != nil {
		return manifest{}, fmt.Errorf("manifest: %w", err)
	}
	var m manifest
	if of.Format != firstFormat {
		if err := decodeExactly(body, &m); err != nil {
			return manifest{}, err
		}
		return m, m.validate()
	}
	var first firstManifest
	if err := decodeExactly(body, &first); err != nil {
		return manifest{}, err
	}
	m, err := first.named(declared)
	if err != nil {
		return manifest{}, err
	}
	return m, m.validate()
}

// decodeExactly accepts only what this version writes: no unknown or repeated field, no other
// spelling of one, and no data after the end.
func decodeExactly(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	again, err := json.Marshal(into)
	if err != nil || !bytes.Equal(again, body) {
		return errors.New("manifest: fields that are not ours")
	}
	return nil
}

// declared returns the parts of the image as its writer declared them.
func (m manifest) declared() []Part {
	parts := []Part{{m.Bulk.Name, m.Bulk.Kind}}
	for _, p := range m.Parts {
		parts = append(parts, Part{p.Name, Small})
	}
	return parts
}

func (m manifest) validate() error {
	bad := func(what string) error { return fmt.Errorf("manifest: bad %s", what) }
	switch {
	case m.Format != manifestFormat:
		return bad("format")
	case validID(m.ID) != nil:
		return bad("id")
	case m.Parent != "" && validID(m.Parent) != nil:
		return bad("parent")
	case checkParts(m.declared()) != nil:
		return bad("set of files")
	case m.Bulk.Bytes < 0 || m.Bulk.Bytes > maxBytes:
		return bad("size")
	case m.complete() == (m.Bulk.Seen != nil) || m.complete() == (m.Bulk.Boot != ""):
		return bad("proof")
	}
	if m.complete() {
		if _, err := parseDigest(m.Bulk.Tree); err != nil {
			return err
		}
	}
	for _, p := range m.Parts {
		if p.Bytes < 0 || p.Bytes > maxBytes {
			return bad(p.Name)
		}
		if _, err := parseDigest(p.SHA256); err != nil {
			return err
		}
	}
	return nil
}

func parseDigest(text string) (digest, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(digest{}) {
		return digest{}, errors.New("manifest: bad hash")
	}
	return digest(b), nil
}
