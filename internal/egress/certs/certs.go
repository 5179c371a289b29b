// Package certs owns the certificate authority of each sandbox, and the leaf certificates that the
// egress gateway presents inside. It also owns the files and variables that make programs in the
// sandbox trust them, and the roots for verifying upstream servers.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// life is the authority's lifetime. The authority is discarded with its sandbox long before
	// that.
	life = 10 * 365 * 24 * time.Hour
	// leafLife limits the damage of a leaked leaf. Together with renewBefore, it ensures that a
	// client with a long-lived connection has a valid leaf.
	leafLife    = 24 * time.Hour
	renewBefore = 6 * time.Hour
	// slack is how far a sandbox's clock may be behind the gateway's.
	slack = time.Hour
	// maxLeaves is the number of cached leaves, which equals the number of names that a sandbox may
	// use.
	maxLeaves = names.MaxNames
)

// Authority signs leaves for one sandbox. Its keys are generated here and never leave this
// process's memory: no method returns them, and printing an Authority does not show them. It is
// safe for concurrent use.
type Authority struct {
	sandbox string
	now     func() time.Time
	root    *x509.Certificate
	key     *ecdsa.PrivateKey
	// leafKey is shared by all leaves, because generating a key costs more than signing. It is not
	// the authority's own key, because the sandbox sees every signature that TLS makes with it.
	leafKey *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// New creates an authority with fresh keys. It can only sign leaves, never another authority.
func New(sandbox string, now func() time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "authority_key", "a sandbox's certificate key could not be made")
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "authority_key", "a sandbox's certificate key could not be made")
	}
	start := now().Add(-slack)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName(sandbox)},
		NotBefore:             start,
		NotAfter:              start.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "authority_certificate", "a sandbox's certificate authority could not be made")
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "authority_certificate", "a sandbox's certificate authority could not be read")
	}
	return &Authority{sandbox: sandbox, now: now, root: root, key: key, leafKey: leafKey, leaves: map[string]*tls.Certificate{}}, nil
}

// commonName returns a name in ASCII, which every program can print, of at most 64 characters, the
// maximum of RFC 5280.
func commonName(sandbox string) string {
	name := []byte("Crannog sandbox " + sandbox)
	for i, c := range name {
		if c < ' ' || c > '~' {
			name[i] = '?'
		}
	}
	return string(name[:min(len(name), 64)])
}

// Certificate returns the authority's certificate in PEM.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// Leaf returns a certificate for exactly one name, with its key. It returns the same certificate
// until shortly before its expiry. The caller must have checked that the policy allows the sandbox
// to reach the name.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	// A name such as *.example.com, or one with a NUL, would make the leaf valid for other names
	// too.
	canonical, err := names.Canonical(name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if leaf, ok := a.leaves[canonical]; ok && now.Before(leaf.Leaf.NotAfter.Add(-renewBefore)) && !now.Before(leaf.Leaf.NotBefore) {
		return leaf, nil
	}
	leaf, err := a.sign(canonical, now)
	if err != nil {
		return nil, fmt.Errorf("leaf for %s: %w", canonical, err)
	}
	if len(a.leaves) >= maxLeaves {
		// Any leaf may be evicted, because signing it again takes a tenth of a millisecond.
		for other := range a.leaves {
			delete(a.leaves, other)
			break
		}
	}
	a.leaves[canonical] = leaf
	return leaf, nil
}

func (a *Authority) sign(name string, now time.Time) (*tls.Certificate, error) {
	template := &x509.Certificate{
		NotBefore:   now.Add(-slack),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{name},
	}
	if len(name) <= 64 {
		template.Subject.CommonName = name
	}
	if template.NotBefore.Before(a.root.NotBefore) {
		template.NotBefore = a.root.NotBefore
	}
	if template.NotAfter.After(a.root.NotAfter) {
		return nil, fault.New(fault.Unavailable, "authority_expired", "the sandbox's certificate authority has expired").
			WithHint("start a new sandbox")
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "leaf_certificate", "a certificate could not be signed")
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "leaf_certificate", "a signed certificate could not be read")
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: parsed}, nil
}

// Format prints the authority's sandbox for every verb. Otherwise %+v would print the private keys.
func (a *Authority) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "certificate authority of sandbox "+a.sandbox)
}

// Roots returns the roots for verifying upstream servers: the host's own and, in PEM, those that
// the operator adds. A sandbox's authority must never be among them.
func Roots(extra []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "roots_unreadable", "this machine's certificate roots cannot be read").
			WithHint("install the ca-certificates package on the machine that runs Crannog")
	}
	if len(extra) == 0 {
		return pool, nil
	}
	added, err := certificates(extra)
	if err != nil {
		return nil, err
	}
	for _, c := range added {
		pool.AddCert(c)
	}
	return pool, nil
}
