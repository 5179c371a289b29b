package proxy

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

const secretValue = "sk-canary-4f9a8b7c6d5e4f3a2b1c"

func token(host string) egress.Secret {
	return egress.Secret{Name: "TOKEN", Value: secretValue, Generation: 1, Host: host, Header: "Authorization", Format: "Bearer {}"}
}

// echList returns the ECH configuration list with which a client hides its server name.
func echList(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte{1, 0, 0x20, 0, 32}
	body = append(body, key.PublicKey().Bytes()...)
	body = append(body, 0, 4, 0, 1, 0, 1) // HKDF-SHA256, AES-128-GCM
	body = append(body, 32, byte(len(public)))
	body = append(body, public...)
	body = append(body, 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
