package compat_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// direction is the side that writes the values that a schema describes.
type direction bool

const (
	request direction = true  // written by a client, which must not be refused
	answer  direction = false // written by the server
)

// comparison finds what a later description no longer promises.
type comparison struct {
	was, is  description
	seen     map[string]bool
	compared int
	problems []string
}

func (c *comparison) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// in returns a nested object by its path, or nil.
func in(d description, names ...string) description {
	for _, name := range names {
		d, _ = d[name].(description)
	}
	return d
}

// paths compares all operations.
func (c *comparison) paths() {
	for path, methods := range in(c.was, "paths") {
		for method, op := range methods.(description) {
			where := method + " " + path
			now := in(c.is, "paths", path, method)
			if now == nil {
				c.problem("%s is gone", where)
				continue
			}
			c.operation(where, op.(description), now)
		}
	}
}

// operation compares the parameters, body and responses of an operation.
func (c *comparison) operation(where string, was, is description) {
	later := map[string]description{}
	for _, p := range list(is["parameters"]) {
		p := p.(description)
		later[fmt.Sprint(p["in"], " ", p["name"])] = p
	}
	for _, p := range list(was["parameters"]) {
		p := p.(description)
		name := fmt.Sprint(p["in"], " ", p["name"])
		now := later[name]
		delete(later, name)
		if now == nil {
			c.problem("%s: the parameter %s is gone", where, name)
			continue
		}
		if now["required"] == true && p["required"] != true {
			c.problem("%s: the parameter %s is required now", where, name)
		}
		c.schema(where+" "+name, in(p, "schema"), in(now, "schema"), request)
	}
	for name, p := range later {
		if p["required"] == true {
			c.problem("%s: there is a new parameter %s, which is required", where, name)
		}
	}
	if body := in(was, "requestBody"); body != nil {
		c.content(where+" body", body, in(is, "requestBody"), request)
	} else if in(is, "requestBody")["required"] == true {
		c.problem("%s: a body is required now", where)
	}
	for status := range in(was, "responses") {
		c.content(where+" "+status, in(was, "responses", status), in(is, "responses", status), answer)
	}
}

// content compares the media types of a body.
func (c *comparison) content(where string, was, is description, d direction) {
	if is == nil {
		c.problem("%s is gone", where)
		return
	}
	for kind := range in(was, "content") {
		if in(is, "content", kind) == nil {
			c.problem("%s: %s is gone", where, kind)
			continue
		}
		if schema := in(was, "content", kind, "schema"); schema != nil {
			c.schema(where, schema, in(is, "content", kind, "schema"), d)
		}
	}
}

// resolve follows a reference to a named schema.
func resolve(d, schema description) (description, string) {
	name, _ := schema["$ref"].(string)
	if name == "" {
		return schema, ""
	}
	return in(d, strings.Split(strings.TrimPrefix(name, "#/"), "/")...), name
}

// schema compares two schemas and everything below them.
func (c *comparison) schema(where string, was, is description, d direction) {
	var name, other string
	was, name = resolve(c.was, was)
	is, other = resolve(c.is, is)
	if name != "" {
		// Schemas may refer to themselves, and one report for each is enough.
		key := fmt.Sprint(name, other, d)
		if c.seen[key] {
			return
		}
		if c.seen == nil {
			c.seen = map[string]bool{}
		}
		c.seen[key] = true
	}
	c.compared++
	if is == nil {
		c.problem("%s is gone", where)
		return
	}
	for _, same := range []string{"type", "format", "pattern"} {
		if fmt.Sprint(was[same]) != fmt.Sprint(is[same]) {
			c.problem("%s: %s was %v and is %v", where, same, was[same], is[same])
		}
	}
	c.values(where, was, is, d)
	for _, p := range slices.Sorted(maps.Keys(in(was, "properties"))) {
		c.schema(where+"."+p, in(was, "properties", p), in(is, "properties", p), d)
	}
	first, second := was, is
	if d == request {
		first, second = is, was
	}
	for _, p := range list(first["required"]) {
		if !slices.Contains(list(second["required"]), p) {
			c.problem("%s: whether %v is required has changed", where, p)
		}
	}
	for _, below := range []string{"items", "additionalProperties"} {
		if schema := in(was, below); schema != nil {
			c.schema(where+"[]", schema, in(is, below), d)
		}
	}
}

// values compares the values that a schema allows.
func (c *comparison) values(where string, was, is description, d direction) {
	old, now := list(was["enum"]), list(is["enum"])
	if now != nil && old == nil && d == request {
		c.problem("%s now accepts only %v", where, now)
	}
	for _, v := range old {
		if now != nil && !slices.Contains(now, v) {
			c.problem("%s no longer has the value %v", where, v)
		}
	}
	if d == answer {
		return
	}
	for limit, sign := range map[string]float64{"maxLength": 1, "maxItems": 1, "maximum": 1, "minimum": -1, "minLength": -1, "minItems": -1} {
		n, ok := is[limit].(float64)
		if o, had := was[limit].(float64); ok && (!had || sign*n < sign*o) {
			c.problem("%s: %s was %v and is %v", where, limit, was[limit], n)
		}
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// TestComparisonReportsNarrowing is the control of TestAPI: each way in which a description can
// become narrower is reported.
func TestComparisonReportsNarrowing(t *testing.T) {
	const was = `{"paths":{"/a":{"get":{"parameters":[{"in":"query","name":"q","schema":{"type":"string"}}],
		"responses":{"200":{"content":{"j":{"schema":{"$ref":"#/s/A"}}}}}},
		"post":{"requestBody":{"content":{"j":{"schema":{"$ref":"#/s/A"}}}}}}},
		"s":{"A":{"type":"object","required":["x"],"properties":{"x":{"type":"string","enum":["1","2"]},"y":{"type":"integer","maximum":9}}}}}`
	for change, want := range map[string]int{
		`"/a"|"/b"`:             2,
		`"name":"q"|"name":"r"`: 1,
		`"q","schema"|"q","required":true,"schema"`: 1,
		`"string"}}]|"integer"}}]`:                  1,
		`"y":{|"z":{`:                               2,
		`"type":"integer"|"type":"number"`:          2,
		`"maximum":9|"maximum":8`:                   1,
		`["1","2"]|["1"]`:                           2,
		`["x"]|["x","y"]`:                           1,
		`["x"]|[]`:                                  1,
		`"200"|"201"`:                               1,
		`"paths"|"paths"`:                           0,
		`["1","2"]|["1","2","3"]`:                   0,
	} {
		from, to, _ := strings.Cut(change, "|")
		c := comparison{was: parseDescription(t, []byte(was)), is: parseDescription(t, []byte(strings.Replace(was, from, to, 1)))}
		c.paths()
		if len(c.problems) != want {
			t.Errorf("%s: got %d problems, want %d: %q", change, len(c.problems), want, c.problems)
		}
	}
}
