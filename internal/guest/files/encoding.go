package files

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// negotiate chooses the encoding of a download: "gzip", or "" for none. Between nearby machines
// compression costs more time than it saves, so it is used only for clients that accept gzip and
// nothing else.
func negotiate(accept string) (string, error) {
	var gzipOK, others, identityRejected, anyRejected bool
	for item := range strings.SplitSeq(accept, ",") {
		name, quality := coding(item)
		switch name {
		case "":
		case "gzip", "x-gzip":
			gzipOK = quality > 0
		case "identity":
			identityRejected = quality == 0
			others = others || quality > 0
		case "*":
			anyRejected = quality == 0
			others = others || quality > 0
		default:
			others = others || quality > 0
		}
	}
	plainOK := !identityRejected && (!anyRejected || strings.Contains(accept, "identity"))
	switch {
	case gzipOK && (!others || !plainOK):
		return "gzip", nil
	case plainOK:
		return "", nil
	}
	return "", httpErrorf(http.StatusNotAcceptable, "no acceptable encoding; gzip and identity are available")
}

// coding splits an item of Accept-Encoding into its name and quality.
func coding(item string) (string, float64) {
	name, params, _ := strings.Cut(item, ";")
	quality := 1.0
	if key, value, ok := strings.Cut(strings.TrimSpace(params), "="); ok && strings.EqualFold(key, "q") {
		if q, err := strconv.ParseFloat(value, 64); err == nil {
			quality = q
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), quality
}

// decode returns the decoded body.
func decode(r *http.Request) (io.Reader, error) {
	switch enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
		return r.Body, nil
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, httpErrorf(http.StatusBadRequest, "the body is not gzip")
		}
		return plain, nil
	default:
		return nil, httpErrorf(http.StatusBadRequest, "unsupported content encoding %q", enc)
	}
}
