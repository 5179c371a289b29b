package causeway_test

import (
	"crypto/sha1"
	"encoding/base64"
)

// websocketAccept returns the Sec-WebSocket-Accept header for a client's key.
func websocketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
