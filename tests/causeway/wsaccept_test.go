package causeway_test

import (
	"crypto/sha1"
	"encoding/base64"
)

// accept computes a WebSocket server's proof.
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
