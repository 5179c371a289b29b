package certs

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
)

// keyStore returns a Java key store of trusted certificates (JKS, version 2), which all versions of
// Java read. Its password is the default of Java trust stores: the content is not secret.
func keyStore(roots *Bundle, own *x509.Certificate) []byte {
	b := make([]byte, 0, len(roots.java)+len(own.Raw)+128)
	b = append(b, storeHead(uint32(roots.count+1))...)
	b = append(b, roots.java...)
	b = appendStoreEntry(b, rootName(roots.count), own)
	return append(b, storeSum(b)...)
}

// Sizes of a store's parts, and the name of Crannog's entry.
const (
	storeHeadSize = 12
	storeSumSize  = sha1.Size
	ownEntry      = "crannog"
)

func rootName(number int) string { return fmt.Sprintf("root-%d", number) }

// storeHead returns a store's header: its type and number of entries.
func storeHead(count uint32) []byte {
	const (
		magic   = 0xFEEDFEED
		version = 2
	)
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	return binary.BigEndian.AppendUint32(b, count)
}

// storeSum returns a store's trailer. The format requires SHA-1 over the password, a fixed phrase
// and the content. The trailer detects damage and is not a signature.
func storeSum(parts ...[]byte) []byte {
	h := sha1.New()
	for _, unit := range utf16.Encode([]rune("changeit")) {
		h.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// storeAddition adds one certificate to a store. It returns false if the file is not a store, has
// another password, or already has an entry with Crannog's name.
func storeAddition(store []byte, own *x509.Certificate) (around Around, tail []byte, ok bool) {
	if len(store) < storeHeadSize+storeSumSize {
		return around, nil, false
	}
	from, to := storeHeadSize, len(store)-storeSumSize
	count := binary.BigEndian.Uint32(store[storeHeadSize-4:])
	if !bytes.Equal(store[:from], storeHead(count)) || !bytes.Equal(store[to:], storeSum(store[:to])) ||
		count == math.MaxUint32 || bytes.Contains(store, []byte(ownEntry)) {
		return around, nil, false
	}
	around = Around{Head: storeHead(count + 1), From: from, To: to, Length: len(store)}
	tail = appendStoreEntry(nil, ownEntry, own)
	return around, append(tail, storeSum(around.Head, store[from:to], tail)...), true
}

// appendStoreEntry appends one trusted certificate to a store.
func appendStoreEntry(b []byte, name string, c *x509.Certificate) []byte {
	const trusted = 2
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, trusted)
	text(name)
	b = binary.BigEndian.AppendUint64(b, uint64(c.NotBefore.UnixMilli()))
	text("X.509")
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Raw)))
	return append(b, c.Raw...)
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
