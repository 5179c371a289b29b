package proxy

import (
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
)

// reading is one way in which a server may take a request. Many servers let a
// header or the query say another method, or another path, than the request line
// does. What is allowed must be allowed in each reading.
type reading struct{ method, path string }

// Names by which servers take another method or path, as plainName has them.
var (
	methodHeaders = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-method"}
	// $httpMethod and $httpHeaders are Google's, for browsers that may send no header of their own.
	methodQueries = []string{"-method", "$httpmethod", "x-http-method-override", "x-http-method", "x-method-override"}
	pathHeaders   = []string{
		"x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-override-url", "x-forwarded-uri", "x-envoy-original-path",
		"x-original-path", "x-forwarded-path", "x-rewrite-path", "x-override-path", "x-request-uri",
	}
)

// headerQuery is the part of a query that some servers take for headers.
const headerQuery = "$httpheaders"

// mostReadings bounds what is judged for one request: each reading costs as much
// as a request does.
const mostReadings = 16

// read finds all readings of the request; the first is the request line's.
func (x *exchange) read() *refusal {
	methods, paths := []string{x.method}, []string{x.path}
	add := func(list *[]string, one string) {
		if one != "" && !slices.Contains(*list, one) {
			*list = append(*list, one)
		}
	}
	override := func(value string) {
		for m := range strings.SplitSeq(value, ",") {
			add(&methods, strings.ToUpper(strings.TrimSpace(m)))
		}
	}
	header := func(name, v string) *refusal {
		switch plain := plainName(name); {
		case slices.Contains(methodHeaders, plain):
			override(v)
		case slices.Contains(pathHeaders, plain):
			path, ok := x.otherPath(strings.TrimSpace(v))
			if !ok {
				return floor(http.StatusBadRequest, "path", policy.RulePath, "the header "+printable(name, 64)+" names a target that cannot be judged")
			}
			add(&paths, path)
		}
		return nil
	}
	for name, values := range x.r.Header {
		for _, v := range values {
			if stop := header(name, v); stop != nil {
				return stop
			}
		}
	}
	for part := range strings.FieldsFuncSeq(x.r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if slices.Contains(methodQueries, plainName(unescaped(name))) {
			override(unescaped(value))
		}
	}
	for name, v := range queryHeaders(x.r.URL.RawQuery) {
		if stop := header(name, v); stop != nil {
			return stop
		}
	}
	if len(methods)*len(paths) > mostReadings {
		return floor(http.StatusBadRequest, "method", policy.RuleMethod, "the request names too many methods or paths")
	}
	x.readings = x.readings[:0]
	for _, p := range paths {
		for _, m := range methods {
			x.readings = append(x.readings, reading{m, p})
		}
	}
	return nil
}

// queryHeaders yields the headers that a query has for servers that take them from there.
func queryHeaders(query string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for part := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
			name, value, _ := strings.Cut(part, "=")
			if plainName(unescaped(name)) != headerQuery {
				continue
			}
			for line := range strings.FieldsFuncSeq(unescaped(value), func(c rune) bool { return c == '\r' || c == '\n' }) {
				name, value, _ := strings.Cut(line, ":")
				if !yield(strings.TrimSpace(name), value) {
					return
				}
			}
		}
	}
}

// otherPath is the escaped path that a header names, without its query.
func (x *exchange) otherPath(value string) (string, bool) {
	u, err := url.Parse(value)
	if err != nil || u.Opaque != "" || u.User != nil || u.Host != "" && u.Hostname() != x.host {
		return "", false
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	// Whether a slash may be escaped is the policy's to say, which asks again.
	return path, names.Path(path, names.PathOptions{EncodedSlash: true}) == nil
}

// unescaped undoes the escapes of a part of a query, where they can be undone.
func unescaped(part string) string {
	if plain, err := url.QueryUnescape(part); err == nil {
		return plain
	}
	return part
}
