package console

import "testing"

// TestMediaTypes checks the media type of each kind of file. With nosniff, browsers do not run a
// file with a wrong type.
func TestMediaTypes(t *testing.T) {
	for name, want := range map[string]string{
		"index.html": "text/html; charset=utf-8", "a/app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8", "app.js.map": "application/json",
		"m.json": "application/json", "x.svg": "image/svg+xml", "x.png": "image/png", "favicon.ico": "image/x-icon", "f.woff2": "font/woff2",
		"x.exe": "application/octet-stream", "html": "application/octet-stream", "x.html.bak": "application/octet-stream",
	} {
		if got := typeOf(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
