package e2b

import (
	"net/url"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// parseMetadata parses the metadata filter, which the router has already decoded once. Clients
// escape keys and values, join them to a query and escape that again. So two more decodings follow:
// one of the whole, then one of each key and value. Decoding both at once would turn a "&" inside a
// value into a separator.
func parseMetadata(value string) (map[string]string, error) {
	if value == "" {
		return nil, nil
	}
	joined, err := url.QueryUnescape(value)
	if err != nil {
		return nil, invalidMetadata()
	}
	filter := map[string]string{}
	for pair := range strings.SplitSeq(joined, "&") {
		if pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, invalidMetadata()
		}
		name, err := url.QueryUnescape(k)
		if err != nil || name == "" {
			return nil, invalidMetadata()
		}
		want, err := url.QueryUnescape(v)
		if err != nil {
			return nil, invalidMetadata()
		}
		// All conditions must hold, and no sandbox has two values for a key.
		if before, twice := filter[name]; twice && before != want {
			return nil, invalidMetadata()
		}
		filter[name] = want
	}
	return filter, nil
}

func invalidMetadata() error {
	return fault.New(fault.Invalid, "metadata_filter_invalid", "the metadata filter is malformed").
		WithHint("it is an escaped query of escaped keys and values")
}
