package config

import (
	"fmt"
	"slices"
	"strings"
)

// Pool is the memory that warm sandboxes may use. The zero value means none.
type Pool struct {
	On    bool
	Bytes int64 // 0 means a share of the available memory
}

const (
	poolAuto = "auto"
	poolOff  = "off"
)

// minPoolBytes is slightly more than the memory of one warm sandbox.
const minPoolBytes = 32 << 20

func parsePool(v string) (Pool, error) {
	switch v {
	case poolAuto:
		return Pool{On: true}, nil
	case poolOff, "0":
		return Pool{}, nil
	}
	n, err := ParseSize(v)
	if err != nil {
		return Pool{}, fmt.Errorf("%q is not auto, off or a size such as 512m", v)
	}
	if n < minPoolBytes {
		return Pool{}, fmt.Errorf("%s is too little for one warm sandbox; use at least %s, or off", FormatSize(n), FormatSize(minPoolBytes))
	}
	return Pool{On: true, Bytes: n}, nil
}

// String returns the text that parsePool parses to p.
func (p Pool) String() string {
	switch {
	case !p.On:
		return poolOff
	case p.Bytes == 0:
		return poolAuto
	}
	return FormatSize(p.Bytes)
}

// Languages are the languages that are preloaded in warm sandboxes.
type Languages []string

const noLanguages = "none"

var knownLanguages = []string{"python", "javascript"}

func parseLanguages(v string) (Languages, error) {
	if v == noLanguages {
		return nil, nil
	}
	var list Languages
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(knownLanguages, name) || slices.Contains(list, name) {
			return nil, fmt.Errorf("%q is not python, javascript, both separated by a comma, or none", v)
		}
		list = append(list, name)
	}
	return list, nil
}

// String returns the text that parseLanguages parses to l.
func (l Languages) String() string {
	if len(l) == 0 {
		return noLanguages
	}
	return strings.Join(l, ",")
}
