package cli

import (
	"testing"

	"github.com/crannog/crannog/api"
)

func TestF3SplitMount(t *testing.T) {
	for text, want := range map[string]api.Mount{
		"/a": {Source: "/a"}, "a": {Source: "a"}, "/a:ro": {Source: "/a", ReadOnly: true}, "/a:cow": {Source: "/a"},
		"/a:/b": {Source: "/a", Target: "/b"}, "/a:/b:ro": {Source: "/a", Target: "/b", ReadOnly: true}, "../a:/b/:cow": {Source: "../a", Target: "/b"},
		"/a:b/c:/d": {Source: "/a:b/c", Target: "/d"}, "/a:b/c": {Source: "/a:b/c"},
	} {
		if got, err := splitMount(text); err != nil || got != want {
			t.Errorf("splitMount(%q): got %+v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":/b", "/a:rw", "/a:/b:rw", "/a:b", "/a:/b/../c", ":ro"} {
		if got, err := splitMount(text); err == nil {
			t.Errorf("splitMount(%q): got %+v, want an error", text, got)
		}
	}
}
