package lifecycle

import (
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// ParseShares reads the list of host directories that callers may mount by name, also callers over
// the network: NAME=PATH[:ro|:cow], separated by semicolons.
func ParseShares(text string) (map[string]sandbox.Mount, error) {
	shares := map[string]sandbox.Mount{}
	for entry := range strings.SplitSeq(text, ";") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, source, _ := strings.Cut(entry, "=")
		m := sandbox.Mount{Name: strings.TrimSpace(name), Source: strings.TrimSpace(source)}
		if rest, ok := strings.CutSuffix(m.Source, ":ro"); ok {
			m.Source, m.ReadOnly = rest, true
		}
		m.Source = strings.TrimSuffix(m.Source, ":cow")
		_, twice := shares[m.Name]
		if checkName(m.Name) != nil || m.Name == "" || !filepath.IsAbs(m.Source) || twice {
			return nil, fault.Newf(fault.Invalid, "mounts_invalid", "mounts: %.200q is not NAME=/PATH[:ro|:cow], or its name appears twice", entry)
		}
		shares[m.Name] = m
	}
	return shares, nil
}

// namesHost reports whether a request names files of the host by their paths.
func namesHost(req sandbox.CreateRequest) bool {
	for _, m := range req.Mounts {
		if m.Name == "" {
			return true
		}
	}
	return false
}
