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

// MaxEnvelope limits the size of an envelope.
const MaxEnvelope = 64 << 20

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"` // base64
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	// KeyID is a hint. The signature does not cover it.
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"` // base64
}

// pae returns the bytes that are signed: the type and the payload, each after its length, so that
// no byte can move from one to the other.
func pae(payloadType string, payload []byte) []byte {
	head := fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
	return append([]byte(head), payload...)
}

// parsedEnvelope is a parsed envelope. Its signature is not verified yet.
type parsedEnvelope struct {
	payloadType string
	payload     []byte
	signatures  []parsedSignature
}

type parsedSignature struct {
	keyID string
	sig   []byte
}

// open parses an envelope. It accepts one encoding only, so that no two readers can understand an
// envelope differently.
func open(data []byte) (parsedEnvelope, error) {
	if len(data) > MaxEnvelope {
		return parsedEnvelope{}, fmt.Errorf("it is larger than %d bytes", MaxEnvelope)
	}
	var e envelope
	if err := decodeStrict(data, &e); err != nil {
		return parsedEnvelope{}, err
	}
	out := parsedEnvelope{payloadType: e.PayloadType}
	var err error
	if out.payload, err = unbase64(e.Payload); err != nil {
		return parsedEnvelope{}, fmt.Errorf("its payload is not base64: %w", err)
	}
	for _, s := range e.Signatures {
		sig, err := unbase64(s.Sig)
		if err != nil {
			return parsedEnvelope{}, fmt.Errorf("its signature is not base64: %w", err)
		}
		out.signatures = append(out.signatures, parsedSignature{s.KeyID, sig})
	}
	return out, nil
}

// unbase64 accepts one encoding of each value. It rejects line breaks and stray bits at the end,
// which would give the same value other encodings.
func unbase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err == nil && strings.ContainsAny(text, "\r\n") {
		err = errors.New("there are line breaks in it")
	}
	return b, err
}

// decodeStrict parses one JSON value without unknown fields, duplicate fields or data after it.
func decodeStrict(data []byte, into any) error {
	if err := checkDuplicates(data); err != nil {
		return err
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after it")
	}
	return nil
}

// maxDepth exceeds the nesting of every statement.
const maxDepth = 32

// checkDuplicates rejects objects with duplicate field names. Otherwise one reader could use the
// first value and another the last. Go's reader ignores case in names, so checkDuplicates does too.
func checkDuplicates(data []byte) error {
	err := checkValue(json.NewDecoder(bytes.NewReader(data)), 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

// checkValue checks the next value of the stream.
func checkValue(in *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errors.New("it nests too deeply")
	}
	t, err := in.Token()
	if err != nil {
		return err
	}
	bracket, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := make(map[string]bool)
	for in.More() {
		if bracket == '{' {
			name, err := in.Token()
			if err != nil {
				return err
			}
			// ToUpper and then ToLower, because some letters have two lower-case forms with the
			// same upper case, and Go's reader treats them as equal.
			folded := strings.ToLower(strings.ToUpper(fmt.Sprint(name)))
			if seen[folded] {
				return fmt.Errorf("the field %.40q occurs twice", name)
			}
			seen[folded] = true
		}
		if err := checkValue(in, depth+1); err != nil {
			return err
		}
	}
	_, err = in.Token() // the closing bracket
	return err
}
