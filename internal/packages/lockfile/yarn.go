package lockfile

import (
	"bufio"
	"bytes"
	"errors"
	"net/url"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// yarnEntry is one entry of a yarn.lock.
type yarnEntry struct {
	name, version, resolved, integrity string
}

// parseYarn reads version 1. The checksums of later versions are about the archives that yarn makes
// itself, so they cannot be compared with those of a registry.
func parseYarn(text []byte, c *collector) error {
	var e *yarnEntry
	flush := func() error {
		if e == nil {
			return nil
		}
		done := *e
		e = nil
		return c.yarn(done)
	}
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		line := strings.TrimRight(scan.Text(), "\r ")
		trimmed := strings.TrimLeft(line, " ")
		indent := len(line) - len(trimmed)
		switch {
		case trimmed == "" || trimmed[0] == '#':
		case indent == 0 && strings.HasPrefix(line, "__metadata:"):
			return errors.New("its checksums are about yarn's own archives, and not about those of the registry; only yarn 1 has such digests")
		case indent == 0:
			if err := flush(); err != nil {
				return err
			}
			if !strings.HasSuffix(line, ":") {
				return errors.New("an entry does not end with a colon")
			}
			e = &yarnEntry{name: yarnName(strings.TrimSuffix(line, ":"))}
		case indent == 2 && e != nil:
			field, value, _ := strings.Cut(trimmed, " ")
			value = strings.Trim(value, `"`)
			switch field {
			case "version":
				e.version = value
			case "resolved":
				e.resolved = value
			case "integrity":
				e.integrity = value
			}
		}
	}
	if err := scan.Err(); err != nil {
		return err
	}
	return flush()
}

// yarnName returns the name of the first of an entry's patterns, such as "@babel/core@^7.0.0" or,
// for an alias, "a@npm:b@^1.0.0".
func yarnName(patterns string) string {
	first, _, _ := strings.Cut(patterns, ",")
	name, wanted := atVersion(strings.Trim(strings.TrimSpace(first), `"`))
	if alias, ok := strings.CutPrefix(wanted, "npm:"); ok {
		name, _ = atVersion(alias)
	}
	return name
}

// atVersion separates NAME@VERSION. The first byte of a scoped name is an @ too.
func atVersion(s string) (name, version string) {
	if len(s) < 2 {
		return s, ""
	}
	if at := strings.IndexByte(s[1:], '@'); at >= 0 {
		return s[:at+1], s[at+2:]
	}
	return s, ""
}

func (c *collector) yarn(e yarnEntry) error {
	digest, ok := packages.ParseIntegrity(e.integrity)
	if !ok && e.integrity == "" {
		// Old files have only the SHA-1 of the archive, in the URL. For a git repository, the same
		// place has a commit, which is not a digest of an archive.
		if u, err := url.Parse(e.resolved); err == nil && (u.Scheme == "https" || u.Scheme == "http") && path.Ext(u.Path) == ".tgz" {
			digest, _ = packages.HexDigest("sha1", u.Fragment)
		}
	}
	return c.add(packages.NPM, e.name, e.version, digest)
}
