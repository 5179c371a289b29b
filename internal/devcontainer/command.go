package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Command is a lifecycle command: one program, or several that run at the same time. The zero
// value runs nothing.
type Command struct {
	Parts []Part
}

// Part is one program of a Command.
type Part struct {
	Name string // in a command of several parts
	Args []string
}

// UnmarshalJSON accepts the three forms of a command: a string for the shell, an array of a program
// and its arguments, and an object of such commands, which run at the same time.
func (c *Command) UnmarshalJSON(data []byte) error {
	c.Parts = nil
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	if data[0] != '{' {
		args, err := commandLine(data)
		if len(args) > 0 {
			c.Parts = []Part{{Args: args}}
		}
		return err
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		args, err := commandLine(bytes.TrimSpace(parts[name]))
		if err != nil {
			return err
		}
		if len(args) > 0 {
			c.Parts = append(c.Parts, Part{name, args})
		}
	}
	return nil
}

// MarshalJSON writes a form that UnmarshalJSON reads.
func (c Command) MarshalJSON() ([]byte, error) {
	if len(c.Parts) == 1 && c.Parts[0].Name == "" {
		return json.Marshal(c.Parts[0].Args)
	}
	all := map[string][]string{}
	for _, p := range c.Parts {
		all[p.Name] = p.Args
	}
	return json.Marshal(all)
}

var errCommand = errors.New("a command is a string, an array of strings, or an object of these")

func commandLine(data []byte) ([]string, error) {
	switch {
	case string(data) == "null":
		return nil, nil
	case len(data) > 0 && data[0] == '"':
		var text string
		if err := json.Unmarshal(data, &text); err != nil || text == "" {
			return nil, err
		}
		return []string{"/bin/sh", "-c", text}, nil
	case len(data) > 0 && data[0] == '[':
		var args []string
		if err := json.Unmarshal(data, &args); err != nil {
			return nil, errCommand
		}
		if len(args) > 0 && args[0] == "" {
			return nil, errors.New("a command's program is an empty string")
		}
		return args, nil
	}
	return nil, errCommand
}
