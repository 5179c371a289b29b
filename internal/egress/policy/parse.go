package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxDocumentSize limits the size of a document. The longest handwritten ones have a few
	// hundred lines.
	maxDocumentSize = 1 << 20
	maxDepth        = 16
	maxNodes        = 100_000
)

// Parse parses one document strictly. An unknown field, a duplicate key, an alias, an empty value
// or a second document is an error, because each could hide a rule from a reviewer. JSON is
// accepted, because it is YAML.
func Parse(text []byte) (Document, error) {
	var d Document
	root, err := decode(text, &d)
	if err != nil {
		return Document{}, err
	}
	lines := map[string]int{}
	recordLines(root, "", lines)
	if err := d.check(lines); err != nil {
		return Document{}, err
	}
	return d, nil
}

// decode reads exactly one strict YAML document into v.
func decode(text []byte, v any) (*yaml.Node, error) {
	if len(text) > maxDocumentSize {
		return nil, invalid("the text is longer than 1 MiB")
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, invalid(plain(err))
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return nil, invalid("the document is empty or is not a set of fields")
	}
	left := maxNodes
	if err := inspect(root.Content[0], 0, &left); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil {
		return nil, invalid(plain(err))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, invalid("there is more than one document in the text")
	}
	return root.Content[0], nil
}

// inspect rejects features that make a text mean more than is visible: aliases, with which a few
// lines can expand to gigabytes, tags, merges, depth and empty values.
func inspect(n *yaml.Node, depth int, left *int) error {
	*left--
	switch {
	case depth > maxDepth:
		return at(n, "is nested too deeply")
	case *left < 0:
		return at(n, "the document has too many entries")
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return at(n, "anchors and aliases are not supported; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		return at(n, "tags are not supported")
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return at(n, "a field without a value; leave the field out")
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && (c.Kind != yaml.ScalarNode || c.Tag != "!!str") {
			return at(c, "a field's name must be a plain word")
		}
		if err := inspect(c, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// recordLines records the line of each field, so that an error about its value can name the line.
func recordLines(n *yaml.Node, path string, lines map[string]int) {
	lines[path] = n.Line
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			recordLines(n.Content[i+1], join(path, n.Content[i].Value), lines)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			recordLines(c, path+"["+strconv.Itoa(i)+"]", lines)
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode: // no fields inside
	}
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// plain returns the text of an error of the YAML library without the names of Go types. Of many
// errors it keeps only the first few.
func plain(err error) string {
	var many *yaml.TypeError
	list := []string{err.Error()}
	if errors.As(err, &many) {
		list = many.Errors
	}
	if len(list) > maxProblems {
		list = append(list[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(list)-maxProblems))
	}
	for i, s := range list {
		s = strings.TrimPrefix(s, "yaml: ")
		if before, _, ok := strings.Cut(s, " not found in type "); ok {
			s = strings.Replace(before, "field ", "there is no field ", 1)
		}
		s, _, _ = strings.Cut(s, " into policy.")
		list[i] = strings.ToValidUTF8(s, "")
		if len(list[i]) > 300 {
			list[i] = list[i][:300]
		}
	}
	return strings.Join(list, "; ")
}

func at(n *yaml.Node, text string) error {
	return invalid("line " + strconv.Itoa(n.Line) + ": " + text)
}

func invalid(text string) *fault.Error {
	return fault.New(fault.Invalid, "policy_invalid", text).WithHint("docs/reference/policy.md has every field; crannog policy check reads a file without using it.")
}
