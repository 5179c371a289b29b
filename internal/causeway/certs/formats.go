package certs

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
)

// keyStore writes a Java key store of trusted certificates (JKS, version 2),
// which every Java reads. It is guarded by the password that all of Java
// assumes for a trust store: there is nothing secret in it.
func keyStore(roots *Bundle, own *x509.Certificate) []byte {
	const (
		magic   = 0xFEEDFEED
		version = 2
	)
	b := make([]byte, 0, len(roots.java)+len(own.Raw)+128)
	b = binary.BigEndian.AppendUint32(b, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(roots.count+1))
	b = append(b, roots.java...)
	b = appendStoreEntry(b, roots.count, own)
	// The format fixes SHA-1 and this phrase. The sum finds damage; it is no
	// signature.
	h := sha1.New()
	for _, unit := range utf16.Encode([]rune("changeit")) {
		h.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(b)
	return h.Sum(b)
}

// appendStoreEntry writes one certificate under the name root-<number>.
func appendStoreEntry(b []byte, number int, c *x509.Certificate) []byte {
	const trusted = 2
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, trusted)
	text(fmt.Sprintf("root-%d", number))
	b = binary.BigEndian.AppendUint64(b, uint64(c.NotBefore.UnixMilli()))
	text("X.509")
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Raw)))
	return append(b, c.Raw...)
}

// subjectHash names a certificate's file in OpenSSL's directory of roots: the
// first four bytes, last one first, of the SHA-1 of the subject in OpenSSL's
// canonical form. It is right for subjects of plain ASCII whose parts stand
// alone, as ours do.
func subjectHash(c *x509.Certificate) string {
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	var canonical bytes.Buffer
	for _, n := range c.Subject.Names {
		value, _ := n.Value.(string)
		// In the canonical form letters are lower case and runs of spaces one.
		set, err := asn1.MarshalWithParams([]attribute{{n.Type, strings.ToLower(strings.Join(strings.Fields(value), " "))}}, "set")
		if err != nil {
			panic("certs: a subject of our own making does not encode: " + err.Error())
		}
		canonical.Write(set)
	}
	sum := sha1.Sum(canonical.Bytes())
	return hex.EncodeToString([]byte{sum[3], sum[2], sum[1], sum[0]})
}
