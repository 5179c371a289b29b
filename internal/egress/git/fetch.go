package git

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
)

// longestFetch limits the uncompressed size of a fetch request. Its longest part is the list of the
// client's commits, of some megabytes at most.
const longestFetch = 64 << 20

// fetchWords are the first words of the lines of a fetch, in all versions of the protocol.
var fetchWords = []string{
	"want", "have", "done", "shallow", "deepen", "deepen-since", "deepen-not", "deepen-relative", "filter",
	"command", "agent", "object-format", "session-id", "server-option",
	"want-ref", "thin-pack", "no-progress", "include-tag", "ofs-delta", "sideband-all", "packfile-uris", "wait-for-done",
	"symrefs", "peel", "ref-prefix", "unborn", "size", "oid",
}

// IsFetch reports whether a complete body is a valid fetch, so that no other request can be sent as
// one. encoding is the header Content-Encoding.
func IsFetch(body io.Reader, encoding string) bool {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return false
		}
		body = z
	default:
		return false
	}
	r := bufio.NewReader(&limited{r: body, left: longestFetch})
	for first := true; ; first = false {
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return !first
		}
		line, err := readFetchPacket(r)
		if err != nil || line != "" && !isFetchLine(line, first) {
			return false
		}
	}
}

// readFetchPacket is like readPacket, but accepts only lines of text and the delimiter of protocol
// 2. It returns "" for packets without text.
func readFetchPacket(r *bufio.Reader) (string, error) {
	if length, err := r.Peek(4); err == nil && string(length) == "0001" {
		_, err := r.Discard(4)
		return "", err
	}
	line, err := readPacket(r)
	if err != nil || line == nil {
		return "", err
	}
	text := strings.TrimSuffix(string(line), "\n")
	if text == "" {
		return "", errPacket
	}
	return text, nil
}

func isFetchLine(line string, first bool) bool {
	word := line
	if i := strings.IndexAny(line, " ="); i >= 0 {
		word = line[:i]
	}
	switch {
	case !printable(line):
		return false
	case word == "want", word == "have", word == "shallow", word == "oid":
		id, _, _ := strings.Cut(strings.TrimPrefix(line, word+" "), " ")
		return isID(id)
	case first:
		return word == "command"
	}
	return slices.Contains(fetchWords, word)
}
