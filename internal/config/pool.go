package config

import (
	"fmt"
	"slices"
	"strings"
)

// Pool says how much memory sandboxes may use that wait for callers. The zero
// value is none.
type Pool struct {
	On    bool
	Bytes int64 // 0 is a share of what is available
}

const (
	poolAuto = "auto"
	poolOff  = "off"
)

// leastPool is what one waiting sandbox takes, and a little.
const leastPool = 32 << 20

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
	if n < leastPool {
		return Pool{}, fmt.Errorf("%s is too little for one sandbox to wait; at least %s, or off", FormatSize(n), FormatSize(leastPool))
	}
	return Pool{On: true, Bytes: n}, nil
}

// String writes it so that it reads the same.
func (p Pool) String() string {
	switch {
	case !p.On:
		return poolOff
	case p.Bytes == 0:
		return poolAuto
	}
	return FormatSize(p.Bytes)
}

// Languages are what the code interpreter has loaded in sandboxes that wait.
type Languages []string

const noLanguages = "none"

var loadable = []string{"python", "javascript"}

func parseLanguages(v string) (Languages, error) {
	if v == noLanguages {
		return nil, nil
	}
	var list Languages
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(loadable, name) || slices.Contains(list, name) {
			return nil, fmt.Errorf("%q is not python, javascript, both apart by a comma, or none", v)
		}
		list = append(list, name)
	}
	return list, nil
}

// String writes them so that they read the same.
func (l Languages) String() string {
	if len(l) == 0 {
		return noLanguages
	}
	return strings.Join(l, ",")
}
