package javastore_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/javastore"
)

func TestParseReturnsWhatWasJoined(t *testing.T) {
	one := javastore.AppendEntry(nil, "one", time.UnixMilli(1), []byte("certificate"))
	two := javastore.AppendEntry(nil, "two", time.UnixMilli(2), []byte("another"))
	store := javastore.Join(2, one, two)
	entries, count, ok := javastore.Parse(store)
	if !ok || count != 2 || !bytes.Equal(entries, append(bytes.Clone(one), two...)) {
		t.Errorf("got %q, %d entries, %v", entries, count, ok)
	}
	if !javastore.IsHead(store[:javastore.HeadSize]) || javastore.IsHead(store[1:javastore.HeadSize+1]) || javastore.IsHead(store) || javastore.IsHead(nil) {
		t.Error("a header is not recognised, or something else is taken for one")
	}
	if entries, count, ok := javastore.Parse(javastore.Join(0)); !ok || count != 0 || len(entries) != 0 {
		t.Errorf("an empty store: got %q, %d entries, %v", entries, count, ok)
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":            func([]byte) []byte { return nil },
		"cut off":          func(s []byte) []byte { return s[:len(s)-1] },
		"damaged":          func(s []byte) []byte { s[20] ^= 1; return s },
		"another password": func(s []byte) []byte { s[len(s)-1] ^= 1; return s },
		"another format":   func(s []byte) []byte { s[0] = 0x30; return s },
		"too many entries": func([]byte) []byte { return javastore.Join(1<<32-1, one) },
	} {
		if _, _, ok := javastore.Parse(change(bytes.Clone(store))); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestWithoutRemovesOneCertificate(t *testing.T) {
	entry := func(name, certificate string) []byte {
		return javastore.AppendEntry(nil, name, time.UnixMilli(1), []byte(certificate))
	}
	a, own, b := entry("a", "one"), entry("debian:own", "own"), entry("b", "two")
	for name, c := range map[string]struct{ store, want []byte }{
		"in the middle": {javastore.Join(3, a, own, b), javastore.Join(2, a, b)},
		"twice":         {javastore.Join(3, own, a, entry("again", "own")), javastore.Join(1, a)},
		"alone":         {javastore.Join(1, own), javastore.Join(0)},
		"not there":     {javastore.Join(2, a, b), javastore.Join(2, a, b)},
	} {
		if got, ok := javastore.Without(c.store, []byte("own")); !ok || !bytes.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, c.want)
		}
	}
	for name, store := range map[string][]byte{
		"no store":       []byte("no store"),
		"too few":        javastore.Join(2, a),
		"too many":       javastore.Join(1, a, b),
		"a private key":  javastore.Join(1, append([]byte{0, 0, 0, 1}, a[4:]...)),
		"a cut entry":    javastore.Join(1, a[:len(a)-1]),
		"no certificate": javastore.Join(1, entry("a", "")),
	} {
		if _, ok := javastore.Without(store, []byte("own")); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzParse parses what root in a sandbox may have written.
func FuzzParse(f *testing.F) {
	f.Add(javastore.Join(0))
	f.Add(javastore.Join(1, []byte("entry")))
	f.Add([]byte("\xfe\xed\xfe\xed"))
	f.Fuzz(func(t *testing.T, store []byte) {
		entries, count, ok := javastore.Parse(store)
		if ok && !bytes.Equal(javastore.Join(count, entries), store) {
			t.Errorf("%q does not come back", store)
		}
		if rest, ok := javastore.Without(store, []byte("own")); ok && len(rest) > len(store) {
			t.Errorf("%q grew to %q", store, rest)
		}
	})
}
