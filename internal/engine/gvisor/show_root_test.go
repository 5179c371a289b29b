package gvisor

import "testing"

// F3 (docs/internals/regressions.md): no two mounts may have the same path, and no mount may be
// below another one, in any order. Paths must be absolute and clean, and not the root.
func TestF3MountPathsDoNotOverlap(t *testing.T) {
	for _, c := range []struct {
		paths []string
		ok    bool
	}{
		{[]string{"/a", "/b/c", "/b/d"}, true}, {[]string{"/a", "/a"}, false}, {[]string{"/a", "/a/b"}, false}, {[]string{"/a/b", "/a"}, false},
		{[]string{"/"}, false}, {[]string{"a"}, false}, {[]string{"/a/../b"}, false}, {[]string{"/a/"}, false}, {[]string{""}, false},
	} {
		var err error
		root := &node{}
		for _, path := range c.paths {
			if err == nil {
				err = root.add(path, node{leaf: true})
			}
		}
		if err == nil != c.ok {
			t.Errorf("adding %q: got %v, want success: %v", c.paths, err, c.ok)
		}
	}
}
