package provenance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxEnvelope bounds an envelope that is read.
const MaxEnvelope = 64 << 20

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"` // base64
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	// KeyID is a hint that the signature does not cover.
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"` // base64
}

// pae is what is signed: the type and the payload, each behind its length, so
// that no byte can be moved from one to the other.
func pae(payloadType string, payload []byte) []byte {
	head := fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
	return append([]byte(head), payload...)
}

// opened is an envelope that has the form of one of ours. Nothing of it is
// known to be true.
type opened struct {
	payloadType string
	payload     []byte
	signatures  []openedSignature
}

type openedSignature struct {
	keyID string
	sig   []byte
}

// open reads an envelope. It takes one form only: what two readers could
// understand differently is refused.
func open(data []byte) (opened, error) {
	if len(data) > MaxEnvelope {
		return opened{}, fmt.Errorf("it is larger than %d bytes", MaxEnvelope)
	}
	var e envelope
	if err := strict(data, &e); err != nil {
		return opened{}, err
	}
	out := opened{payloadType: e.PayloadType}
	var err error
	if out.payload, err = unbase64(e.Payload); err != nil {
		return opened{}, fmt.Errorf("its payload is not base64: %w", err)
	}
	for _, s := range e.Signatures {
		sig, err := unbase64(s.Sig)
		if err != nil {
			return opened{}, fmt.Errorf("its signature is not base64: %w", err)
		}
		out.signatures = append(out.signatures, openedSignature{s.KeyID, sig})
	}
	return out, nil
}

// unbase64 takes one form of each text of bytes: line breaks and stray bits at
// the end would make others of the same.
func unbase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err == nil && strings.ContainsAny(text, "\r\n") {
		err = errors.New("there are line breaks in it")
	}
	return b, err
}

// strict reads one JSON value without unknown fields, twice the same field, or
// anything behind it.
func strict(data []byte, into any) error {
	if err := distinct(data); err != nil {
		return err
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// deepest is more than any statement nests.
const deepest = 32

// distinct refuses objects with two fields of one name, of which one reader
// would take the first and another the last. Case makes no difference to Go's
// reader, so it makes none here.
func distinct(data []byte) error {
	err := distinctValue(json.NewDecoder(bytes.NewReader(data)), 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

func distinctValue(in *json.Decoder, depth int) error {
	if depth > deepest {
		return errors.New("it nests too deeply")
	}
	t, err := in.Token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := make(map[string]bool)
	for in.More() {
		if open == '{' {
			name, err := in.Token()
			if err != nil {
				return err
			}
			// First up and then down: some letters have two forms that go up to
			// the same, and Go's reader takes them for that.
			folded := strings.ToLower(strings.ToUpper(fmt.Sprint(name)))
			if seen[folded] {
				return fmt.Errorf("the field %.40q is there twice", name)
			}
			seen[folded] = true
		}
		if err := distinctValue(in, depth+1); err != nil {
			return err
		}
	}
	_, err = in.Token() // the end
	return err
}
