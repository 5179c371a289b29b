package certs

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/crannog/crannog/internal/guest/javastore"
)

// keyStore returns a Java trust store.
func keyStore(roots *Bundle, own *x509.Certificate) []byte {
	return javastore.Join(uint32(roots.count+1), roots.java, storeEntry(rootName(roots.count), own))
}

// ownEntry is the name of Crannog's entry.
const ownEntry = "crannog"

func rootName(number int) string { return fmt.Sprintf("root-%d", number) }

// storeAddition adds one certificate to a store. It returns false if the file is not a store, has
// another password, or already has an entry with Crannog's name.
func storeAddition(store []byte, own *x509.Certificate) (around Around, tail []byte, ok bool) {
	entries, count, ok := javastore.Parse(store)
	if !ok || bytes.Contains(store, []byte(ownEntry)) {
		return around, nil, false
	}
	next := javastore.Join(count+1, entries, storeEntry(ownEntry, own))
	from, to := javastore.HeadSize, javastore.HeadSize+len(entries)
	return Around{Head: next[:from], From: from, To: to, Length: len(store)}, next[to:], true
}

// storeEntry returns the entry of a trusted certificate.
func storeEntry(name string, c *x509.Certificate) []byte {
	return javastore.AppendEntry(nil, name, c.NotBefore, c.Raw)
}

// subjectHash returns the file name of a certificate in OpenSSL's directory of roots: the first
// four bytes, in reverse order, of the SHA-1 of the subject in OpenSSL's canonical form. It
// supports subjects in plain ASCII with single-valued parts, like Crannog's.
func subjectHash(c *x509.Certificate) string {
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	var canonical bytes.Buffer
	for _, n := range c.Subject.Names {
		value, _ := n.Value.(string)
		// The canonical form has lower-case letters and single spaces.
		set, err := asn1.MarshalWithParams([]attribute{{n.Type, strings.ToLower(strings.Join(strings.Fields(value), " "))}}, "set")
		if err != nil {
			panic("certs: our own subject does not encode: " + err.Error())
		}
		canonical.Write(set)
	}
	sum := sha1.Sum(canonical.Bytes())
	return hex.EncodeToString([]byte{sum[3], sum[2], sum[1], sum[0]})
}
