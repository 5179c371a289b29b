package e2b

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// escape encodes a filter as the SDKs do, but without the last encoding, which the router decodes.
func escape(filter map[string]string) string {
	component := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	var pairs []string
	for k, v := range filter {
		pairs = append(pairs, url.QueryEscape(component(k))+"="+url.QueryEscape(component(v)))
	}
	return strings.Join(pairs, "&")
}

// FuzzMetadataFilter checks that a filter has no empty names, and that encoded filters are decoded.
func FuzzMetadataFilter(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a%2520b=x%2526y&k=v", "%", "=", "&&", "a=b&a=c", "%253D=%253D", "a=b=c", "\x00=\xff"} {
		f.Add(seed, "key", "value")
	}
	f.Add("x=y", "a b&=%+", "ü\n%2526")
	f.Fuzz(func(t *testing.T, raw, k, v string) {
		if filter, err := parseMetadata(raw); err == nil {
			for name := range filter {
				if name == "" {
					t.Fatalf("%q was parsed to a condition without a name", raw)
				}
			}
		}
		if k == "" {
			return
		}
		// The server filters by exactly the fields that the client sets.
		got, err := parseMetadata(escape(map[string]string{k: v}))
		if err != nil || len(got) != 1 || got[k] != v {
			t.Fatalf("got %q, %v; want {%q: %q}", got, err, k, v)
		}
	})
}

// FuzzPageToken checks that a parsed token is the same after encoding it again.
func FuzzPageToken(f *testing.F) {
	for _, ascending := range []bool{true, false} {
		f.Add(pageToken{time.Unix(1, 2), "i1", ascending}.String(), ascending)
	}
	f.Add("", false)
	f.Add("MjAyNi0wMS0wMlQwMzowNDowNVpfXw", true)
	f.Fuzz(func(t *testing.T, s string, ascending bool) {
		token, err := parsePageToken(s, ascending)
		if err != nil {
			return
		}
		again, err := parsePageToken(token.String(), ascending)
		if err != nil || !again.after.Equal(token.after) || again.id != token.id || token.ascending != ascending {
			t.Fatalf("%q is read as %+v and again as %+v, %v", s, token, again, err)
		}
	})
}

// FuzzSandboxID checks the characters of accepted IDs.
func FuzzSandboxID(f *testing.F) {
	for _, seed := range []string{"i0", "i0-c", "", "-", "a-b-c", "A", "../x", "i\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		id, err := sandboxID(raw)
		if err == nil && (id == "" || strings.ContainsAny(id, "-/.\\\x00 ABC") || !strings.HasPrefix(raw, id)) {
			t.Fatalf("%q was parsed as %q", raw, id)
		}
	})
}

// FuzzSnapshotQuery checks that a parsed query is bounded and has valid IDs and names.
func FuzzSnapshotQuery(f *testing.F) {
	for _, seed := range []string{
		"", "sandboxID=i0&name=a&limit=5", "name=a:default", "name=a/b", "limit=-1", "nextToken=x", "%zz", "a;b",
		"nextToken=" + pageToken{after: time.Unix(1, 2), id: "s1"}.String(), "name=&name=b", "sandboxID=i0-c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseSnapshotQuery(raw)
		if err != nil {
			return
		}
		if q.Limit < 1 || q.Limit > maxPage || q.Sandbox != "" && !isID(q.Sandbox) || q.AfterID != "" && !isID(q.AfterID) ||
			strings.ContainsAny(q.Name, ":/ ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			t.Fatalf("%q was parsed as %+v", raw, q)
		}
	})
}
