package solve

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"

	"github.com/crannog/crannog/internal/build/remote"
)

// reportPinned reports a source with what the Dockerfile says about its content, because a source
// whose content is known need not be fetched.
func (g *stage) reportPinned(r *remoteSource) {
	if g.s.Remote == nil {
		return
	}
	pin := r.Pin(r.checksum)
	if r.Git {
		g.s.Remote(r.String(), "", pin)
		return
	}
	digits, _ := strings.CutPrefix(pin, "sha256:")
	if digits == pin {
		digits = "" // there is none, or it is of another function
	}
	g.s.Remote(r.String(), digits, "")
}

// reportFetched reports a source with the content that was fetched.
func (g *stage) reportFetched(r *remoteSource, root *os.Root) error {
	if g.s.Remote == nil {
		return nil
	}
	name := remote.FileName
	if r.Git {
		name = remote.CommitFile
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.Git {
		commit, err := io.ReadAll(io.LimitReader(f, maxCommit))
		if err == nil {
			g.s.Remote(r.String(), "", string(commit))
		}
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	g.s.Remote(r.String(), hex.EncodeToString(h.Sum(nil)), "")
	return nil
}
