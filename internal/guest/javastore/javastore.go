// Package javastore owns the format of Java trust stores (JKS, version 2), which all versions of
// Java read. The host and the guest both write stores, each beside entries that others made.
package javastore

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"math"
	"time"
	"unicode/utf16"
)

// HeadSize and SumSize are the sizes of a store's header and trailer. Its entries are between them.
const (
	HeadSize = 12
	SumSize  = sha1.Size
)

// password is the default of Java's trust stores: their content is not secret.
const password = "changeit"

// Join returns a store with the given number of entries, which may be in several parts.
func Join(count uint32, entries ...[]byte) []byte {
	store := head(count)
	for _, e := range entries {
		store = append(store, e...)
	}
	return append(store, sum(store)...)
}

// Parse returns the entries of a store and their number. It returns false if the file is not a
// store, is damaged or has another password. The entries are a part of the file, and their own form
// is not checked.
func Parse(store []byte) (entries []byte, count uint32, ok bool) {
	if len(store) < HeadSize+SumSize {
		return nil, 0, false
	}
	end := len(store) - SumSize
	count = binary.BigEndian.Uint32(store[HeadSize-4:])
	if !bytes.Equal(store[:HeadSize], head(count)) || count == math.MaxUint32 || !bytes.Equal(store[end:], sum(store[:end])) {
		return nil, 0, false
	}
	return store[HeadSize:end], count, true
}

// Without returns a store without the entries of a certificate. It returns false if the file is not a
// store, or has other entries than trusted certificates.
func Without(store, certificate []byte) (rest []byte, ok bool) {
	entries, count, ok := Parse(store)
	if !ok {
		return nil, false
	}
	var kept []byte
	left := count
	for range count {
		size, found, ok := nextEntry(entries)
		if !ok {
			return nil, false
		}
		if bytes.Equal(found, certificate) {
			left--
		} else {
			kept = append(kept, entries[:size]...)
		}
		entries = entries[size:]
	}
	if len(entries) > 0 {
		return nil, false
	}
	return Join(left, kept), true
}

// nextEntry returns the size of the first entry, and its certificate.
func nextEntry(entries []byte) (size int, certificate []byte, ok bool) {
	rest := entries
	take := func(n int) []byte {
		if n < 0 || n > len(rest) {
			rest = nil
			return nil
		}
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	length := func(bytes int) int {
		n := 0
		for _, b := range take(bytes) {
			n = n<<8 | int(b)
		}
		return n
	}
	if length(4) != trusted {
		return 0, nil, false
	}
	take(length(2)) // the name
	take(8)         // the time
	take(length(2)) // the type
	n := length(4)
	certificate = take(n)
	return len(entries) - len(rest), certificate, n > 0 && certificate != nil
}

// IsHead reports whether data is the header of a store.
func IsHead(data []byte) bool {
	return len(data) == HeadSize && bytes.Equal(data, head(binary.BigEndian.Uint32(data[HeadSize-4:])))
}

// trusted is the kind of an entry that is a trusted certificate.
const trusted = 2

// AppendEntry appends the entry of a trusted certificate.
func AppendEntry(b []byte, name string, created time.Time, certificate []byte) []byte {
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, trusted)
	text(name)
	b = binary.BigEndian.AppendUint64(b, uint64(created.UnixMilli()))
	text("X.509")
	b = binary.BigEndian.AppendUint32(b, uint32(len(certificate)))
	return append(b, certificate...)
}

// head returns a store's header: its type and number of entries.
func head(count uint32) []byte {
	const (
		magic   = 0xFEEDFEED
		version = 2
	)
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	return binary.BigEndian.AppendUint32(b, count)
}

// sum returns a store's trailer. The format requires SHA-1 over the password, a fixed phrase and
// the content. The trailer detects damage and is not a signature.
func sum(content []byte) []byte {
	h := sha1.New()
	for _, unit := range utf16.Encode([]rune(password)) {
		h.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(content)
	return h.Sum(nil)
}
