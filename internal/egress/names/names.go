// Package names owns the valid forms of hosts, authorities, paths and addresses at the egress
// gateway. It also owns the synthetic addresses that represent names inside a sandbox, the answers
// to a sandbox's DNS queries, and the only function that dials outwards. It applies no policy: it
// ensures that what a policy decides about can be interpreted in only one way.
package names

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// ErrAddress is in the chain of an error about a host that is an IP address, in any spelling,
// although a name is required.
var ErrAddress = errors.New("an IP address is given where a name is needed")

const (
	longestName  = 253 // RFC 1035 section 2.3.4, without the root's dot
	longestLabel = 63
)

// Canonical returns the canonical spelling of a host name, in which the gateway compares names:
// lower-case labels of letters, digits and inner hyphens, without the final dot. Everything that
// two parsers may interpret differently is an error: a NUL or % that ends a name early, an @ that
// moves it, or a letter outside ASCII that is mapped to another one. All spellings of an address
// that a resolver would accept are errors too, such as 127.1 or 0x7f000001.
func Canonical(host string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	if name == "" {
		return "", badHost("a host name is empty")
	}
	if isAddress(name) {
		return "", fault.Wrap(ErrAddress, fault.Invalid, "host_is_address", "an IP address cannot be reached directly").
			WithHint("use the host's name: rules are about names")
	}
	if len(name) > longestName {
		return "", badHost("a host name is longer than 253 characters")
	}
	label := 0
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '.' {
			if !validLabel(name[label:i]) {
				return "", badHost("a host name has an empty or over-long label, or one with a hyphen at its edge")
			}
			label = i + 1
			continue
		}
		if !isLetter(c) && !isDigit(c) && c != '-' {
			return "", badHost("a host name has a character that is neither letter, digit, hyphen nor dot").
				WithHint("write an international name in its xn-- form")
		}
	}
	if !validLabel(name[label:]) {
		return "", badHost("a host name has an empty or over-long label, or one with a hyphen at its edge")
	}
	return lower(name), nil
}

// Authority splits "host" or "host:port" and returns the host's canonical name. With a default port
// of zero, the port is required.
func Authority(s string, defaultPort int) (host string, port int, err error) {
	host, digits, written := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") || strings.Contains(digits, ":") {
		// Brackets and several colons belong to IPv6 addresses. The two errors differ only in their
		// message.
		if bare, _, _ := strings.Cut(strings.TrimPrefix(s, "["), "]"); isAddress(bare) {
			host = bare
			_, err = Canonical(host)
			return "", 0, err
		}
		return "", 0, badHost("an authority has more than one colon")
	}
	if host, err = Canonical(host); err != nil {
		return "", 0, err
	}
	if !written {
		if defaultPort == 0 {
			return "", 0, badPort("an authority has no port")
		}
		return host, defaultPort, nil
	}
	// Atoi accepts signs and leading zeros, which other parsers interpret as octal or reject.
	if digits == "" || len(digits) > 5 || !isDigit(digits[0]) || digits[0] == '0' {
		return "", 0, badPort("a port is not a number from 1 to 65535")
	}
	port, err = strconv.Atoi(digits)
	if err != nil || port > 65535 {
		return "", 0, badPort("a port is not a number from 1 to 65535")
	}
	return host, port, nil
}

// isAddress reports whether some resolver would interpret the name as an address, because its last
// label is a decimal or hexadecimal number. The URL standard says that such a name "ends in a
// number", and inet_aton accepts all of them.
func isAddress(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	if strings.HasPrefix(name, "[") {
		_, err := netip.ParseAddr(strings.Trim(name, "[]"))
		return err == nil
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	if len(last) > 1 && last[0] == '0' && last[1]|0x20 == 'x' {
		return strings.Trim(last[2:], "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

func validLabel(label string) bool {
	return label != "" && len(label) <= longestLabel && label[0] != '-' && label[len(label)-1] != '-'
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// lower converts ASCII only. strings.ToLower would map the Kelvin sign to k, and make two different
// names equal if an earlier check were removed.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

func badHost(text string) *fault.Error { return fault.New(fault.Invalid, "host_not_canonical", text) }

func badPort(text string) *fault.Error { return fault.New(fault.Invalid, "port_invalid", text) }
