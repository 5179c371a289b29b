package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time with its unit, such as 90s or 2h. A number without a unit is an error.
type Duration time.Duration

// String formats d without the zero parts that time.Duration adds.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d *Duration) set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || s == "0" {
		return fmt.Errorf("%q is not a duration such as 30s, 15m or 2h", clip(s))
	}
	*d = Duration(v)
	return nil
}

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a duration is a text such as 30s", n.Line)
	}
	if err := d.set(n.Value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// MarshalYAML writes a duration.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalJSON reads a duration.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New("a duration is a text such as 30s")
	}
	return d.set(s)
}

// MarshalJSON writes a duration.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// PortRange is one port, or all from First to Last.
type PortRange struct{ First, Last int }

// Ports are the ports of a block.
type Ports []PortRange

// AllPorts is every port.
var AllPorts = PortRange{1, 65535}

// Port is a single port.
func Port(n int) PortRange { return PortRange{n, n} }

func (ps Ports) has(port int) bool {
	if len(ps) == 0 {
		return port == 443
	}
	for _, r := range ps {
		if r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}

func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return strconv.Itoa(r.First) + "-" + strconv.Itoa(r.Last)
}

func (r *PortRange) set(s string) error {
	first, last, ranged := strings.Cut(s, "-")
	a, err := port(first)
	b := a
	if err == nil && ranged {
		b, err = port(last)
	}
	if err != nil || a > b {
		return fmt.Errorf("%q is not a port such as 443 or a range such as 8000-8010", clip(s))
	}
	*r = PortRange{a, b}
	return nil
}

// port parses a port. Unlike Atoi it rejects a sign.
func port(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errors.New("not a port")
	}
	return int(n), nil
}

// UnmarshalYAML reads a port or a range.
func (r *PortRange) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a port is a number or a range", n.Line)
	}
	if err := r.set(n.Value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// MarshalYAML writes a port as a number and a range as text.
func (r PortRange) MarshalYAML() (any, error) {
	if r.First == r.Last {
		return r.First, nil
	}
	return r.String(), nil
}

// UnmarshalJSON reads a port or a range.
func (r *PortRange) UnmarshalJSON(b []byte) error {
	return r.set(strings.Trim(string(b), `"`))
}

// MarshalJSON writes a port as a number and a range as text.
func (r PortRange) MarshalJSON() ([]byte, error) {
	if r.First == r.Last {
		return []byte(strconv.Itoa(r.First)), nil
	}
	return json.Marshal(r.String())
}

// clip shortens text for an error, so that a document cannot flood a log.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:77], "") + "..."
	}
	return s
}
