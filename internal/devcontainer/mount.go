package devcontainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Mount is a mount that the file asks for.
type Mount struct {
	Type     string
	Source   string
	Target   string
	ReadOnly bool
	Other    []string // options without a meaning here
}

// UnmarshalJSON accepts Docker's form, such as "type=bind,source=/a,target=/b", and an object.
func (m *Mount) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		parsed, err := parseMount(text)
		*m = parsed
		return err
	}
	var o struct {
		Type     string `json:"type"`
		Source   string `json:"source"`
		Target   string `json:"target"`
		ReadOnly bool   `json:"readonly"`
		External bool   `json:"external"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return errors.New("a mount is a string or an object with type, source and target")
	}
	*m = Mount{Type: o.Type, Source: o.Source, Target: o.Target, ReadOnly: o.ReadOnly}
	if o.External {
		m.Other = []string{"external"}
	}
	return m.check()
}

func parseMount(text string) (m Mount, err error) {
	for field := range strings.SplitSeq(text, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(field), "=")
		switch strings.ToLower(name) {
		case "type":
			m.Type = value
		case "source", "src":
			m.Source = value
		case "target", "dst", "destination":
			m.Target = value
		case "readonly", "ro":
			m.ReadOnly = !given || value == "true" || value == "1"
		case "consistency":
			// This option has a meaning only for Docker on macOS.
		default:
			m.Other = append(m.Other, name)
		}
	}
	return m, m.check()
}

func (m *Mount) check() error {
	if m.Type == "" {
		// docker run --mount has the same default.
		m.Type = "volume"
	}
	if !path.IsAbs(m.Target) {
		return fmt.Errorf("the target %q of a mount is not an absolute path", m.Target)
	}
	m.Target = path.Clean(m.Target)
	if strings.ContainsRune(m.Target, 0) || strings.ContainsRune(m.Source, 0) {
		return errors.New("a path of a mount contains a zero byte")
	}
	return nil
}
