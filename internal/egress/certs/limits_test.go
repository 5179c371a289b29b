package certs

import (
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// A sandbox that requests ever more names cannot fill this process's memory.
func TestCachedLeavesAreLimited(t *testing.T) {
	a, err := New("sb", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxLeaves {
		a.leaves[fmt.Sprintf("n%d.test", i)] = nil // signing so many would take a second
	}
	for i := range 3 {
		name := fmt.Sprintf("new%d.test", i)
		leaf, err := a.Leaf(name)
		if err != nil || leaf.Leaf.VerifyHostname(name) != nil || a.leaves[name] != leaf || len(a.leaves) != maxLeaves {
			t.Errorf("leaf for %s: %v, with %d leaves cached, want %d", name, err, len(a.leaves), maxLeaves)
		}
	}
}

// A leaf is not valid before its authority or after it.
func TestLeafIsValidWithinAuthority(t *testing.T) {
	now := time.Now()
	a, err := New("sb", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	end := a.root.NotAfter
	for at, fits := range map[time.Time]bool{
		now: true, a.root.NotBefore: true, end.Add(-leafLife): true, end.Add(-leafLife + time.Second): false, end.Add(time.Hour): false,
	} {
		now = at
		a.leaves = map[string]*tls.Certificate{}
		leaf, err := a.Leaf("a.test")
		if !fits {
			if fault.CodeOf(err) != "authority_expired" {
				t.Errorf("leaf at %v: got %v, want authority_expired", at, err)
			}
			continue
		}
		if err != nil || leaf.Leaf.NotBefore.Before(a.root.NotBefore) || leaf.Leaf.NotAfter.After(end) {
			t.Errorf("leaf at %v: got %v, or a validity outside the authority's", at, err)
		}
	}
}

// Every function that takes a certificate rejects a file without one, and the error states what to
// provide.
func TestFilesWithoutCertificateAreRejected(t *testing.T) {
	empty := []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	for name, err := range map[string]error{
		"ReadBundle": second(ReadBundle(empty)),
		"Addition":   second(Addition(empty)),
		"JavaStore":  second(JavaStore(&Bundle{}, empty)),
		"Roots":      second(Roots(empty)),
	} {
		if fault.CodeOf(err) != "bundle_empty" || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want bundle_empty with a hint", name, err)
		}
	}
	if _, _, err := JavaAddition(nil, empty); fault.CodeOf(err) != "bundle_empty" {
		t.Errorf("JavaAddition: got %v, want bundle_empty", err)
	}
}

func second[T any](_ T, err error) error { return err }
