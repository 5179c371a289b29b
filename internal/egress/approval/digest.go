package approval

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/crannog/crannog/internal/egress"
)

// Digest returns the digest that a grant is bound to: SHA-256 over sandbox, kind, rule, policy and
// facts. Each text is preceded by its length, so that different requests never have the same
// encoding. Otherwise a program could move bytes from one fact to the next and use a grant for
// something else. It does not include the summary, which is derived from the facts.
func Digest(q egress.ApprovalRequest) string {
	h := sha256.New()
	var length [8]byte
	put := func(text string) {
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		// Writing to a hash never fails.
		_, _ = h.Write(length[:])
		_, _ = h.Write([]byte(text))
	}
	for _, text := range []string{"crannog approval 1", q.Sandbox, q.Kind, q.Rule, q.Policy} {
		put(text)
	}
	for _, name := range slices.Sorted(maps.Keys(q.Facts)) {
		put(name)
		put(q.Facts[name])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
