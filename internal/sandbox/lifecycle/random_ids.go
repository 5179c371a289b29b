package lifecycle

import (
	"crypto/rand"
	"regexp"
)

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

var idPattern = regexp.MustCompile(`^i[a-z0-9]{19}$`)

// newID makes a sandbox ID: "i" and 19 characters, 98 bits.
func newID() string { return "i" + random(19) }

// newToken makes a token of 40 characters, 206 bits, that no one can guess.
func newToken() string { return random(40) }

// random draws each character with the same likelihood: a byte of 252 and
// more would favour the first letters, so it is drawn again.
func random(n int) string {
	out := make([]byte, 0, n)
	var buf [64]byte
	for {
		rand.Read(buf[:]) // never fails: the runtime ends the program instead
		for _, b := range buf {
			if int(b) >= 256/len(alphabet)*len(alphabet) {
				continue
			}
			if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
				return string(out)
			}
		}
	}
}
