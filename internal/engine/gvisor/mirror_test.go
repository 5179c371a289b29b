package gvisor

import "testing"

// F3: no two mounts have the same path, and none is below another one, regardless of their order.
func TestF3PlacesOfMountsAreApart(t *testing.T) {
	for _, c := range []struct {
		paths []string
		ok    bool
	}{
		{[]string{"/a", "/b/c", "/b/d"}, true}, {[]string{"/a", "/a"}, false}, {[]string{"/a", "/a/b"}, false}, {[]string{"/a/b", "/a"}, false},
		{[]string{"/"}, false}, {[]string{"a"}, false}, {[]string{"/a/../b"}, false}, {[]string{"/a/"}, false}, {[]string{""}, false},
	} {
		var err error
		places := &node{}
		for _, path := range c.paths {
			if err == nil {
				err = places.add(path, node{leaf: true})
			}
		}
		if err == nil != c.ok {
			t.Errorf("%q: %v", c.paths, err)
		}
	}
}
