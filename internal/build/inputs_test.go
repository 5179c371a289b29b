package build

import (
	"slices"
	"testing"
)

// A source that had two contents during a build is listed with both. One that was listed before its
// content was known is listed once.
func TestInputsKeepEveryContent(t *testing.T) {
	n := &inputs{}
	n.addRemote("https://a.example/moving", "", "")
	n.addRemote("https://a.example/moving", "22", "")
	n.addRemote("https://a.example/moving", "11", "")
	n.addRemote("https://a.example/unknown", "", "")
	n.addImage("base:1", "33")
	n.addImage("base:1", "33")
	var got []string
	for _, r := range n.sorted() {
		text := r.Name + r.URI
		if r.Digest != nil {
			text += "=" + r.Digest.SHA256
		}
		got = append(got, text)
	}
	if want := []string{"base:1=33", "https://a.example/moving=11", "https://a.example/moving=22", "https://a.example/unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A build that is not signed computes nothing.
func TestNoInputsOfUnsignedBuild(t *testing.T) {
	var none *inputs
	none.addImage("base:1", "33")
	if err := none.readContext(nil); err != nil || none.remote() != nil {
		t.Errorf("got %v, want that nothing is read or reported", err)
	}
}
