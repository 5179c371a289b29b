package audit

import (
	"context"
	"errors"
	"os"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crannog/crannog/internal/fault"
)

// Proof proves that one entry is in the audit log that a signed tree head covers.
type Proof struct {
	Entry      string // the entry's line
	Seq        int64
	Hashes     []string // inclusion proof of RFC 6962, base64
	Checkpoint Checkpoint
	Key        string // verifier key
}

// errFound ends a walk early. It is not a failure.
var errFound = errors.New("found")

// Prove returns the proof of an entry, for a tree head that it signs now.
func (l *Log) Prove(ctx context.Context, seq int64) (Proof, error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return Proof{}, err
	}
	first, _, err := l.extent()
	if err != nil {
		return Proof{}, err
	}
	if seq < first || seq >= c.Size {
		return Proof{}, fault.Newf(fault.NotFound, "entry_not_found", "there is no entry %d", seq).
			WithHint("`crannog audit tail` shows the numbers of entries")
	}
	p := Proof{Seq: seq, Checkpoint: c, Key: l.key}
	err = l.walk(spot{}, seq, seq+1, func(_ spot, line []byte) error { p.Entry = string(line); return errFound })
	if !errors.Is(err, errFound) {
		return Proof{}, err
	}
	f, err := openAt(l.path(hashesName), os.O_RDONLY)
	if err != nil {
		return Proof{}, err
	}
	defer f.Close()
	hashes, err := tlog.ProveRecord(c.Size, seq, treeOf(f, c.Size))
	if err != nil {
		return Proof{}, err
	}
	p.Hashes = encodeHashes(hashes)
	// If the proof is invalid, the log was tampered with.
	if _, err := CheckProof(p); err != nil {
		return Proof{}, l.damageFault(err)
	}
	return p, nil
}

// CheckProof checks a proof by itself and returns its entry. It shows only that the holder of p.Key
// signed; the caller must know whose key that is.
func CheckProof(p Proof) (Entry, error) {
	invalid := func(text string, cause error) (Entry, error) {
		return Entry{}, fault.Wrap(cause, fault.Invalid, "proof_invalid", text)
	}
	key, err := note.NewVerifier(p.Key)
	if err != nil {
		return invalid("the proof has no valid key", err)
	}
	c, root, err := openCheckpoint(p.Checkpoint.Note, key)
	if err != nil {
		return invalid("the signed tree head of the proof is not signed by its key", err)
	}
	if c != p.Checkpoint {
		return invalid("the proof contradicts its signed tree head", nil)
	}
	e, err := decode([]byte(p.Entry))
	if err != nil {
		return invalid("the proof is not about an entry", err)
	}
	if e.Seq != p.Seq {
		return invalid("the proof is about another entry", nil)
	}
	hashes, err := decodeHashes(p.Hashes)
	if err != nil {
		return invalid("a hash of the proof cannot be read", err)
	}
	if err := tlog.CheckRecord(hashes, c.Size, root, p.Seq, tlog.RecordHash([]byte(p.Entry))); err != nil {
		return invalid("the entry is not in the audit log of the signed tree head", err)
	}
	return e, nil
}

func encodeHashes(hashes []tlog.Hash) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = h.String()
	}
	return out
}

func decodeHashes(texts []string) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(texts))
	for i, s := range texts {
		h, err := parseHash(s)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

// parseHash accepts one encoding only. Otherwise the same proof would have several forms.
func parseHash(s string) (tlog.Hash, error) {
	h, err := tlog.ParseHash(s)
	if err == nil && h.String() != s {
		err = errors.New("a hash is not in the expected format")
	}
	return h, err
}
