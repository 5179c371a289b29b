package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// isCompleteHTTP reports whether data, the response to a text, is one or more complete HTTP
// responses. Other data after a response belongs to another protocol.
func isCompleteHTTP(text string, data []byte) bool {
	method, _, _ := strings.Cut(text, " ")
	asked := &http.Request{Method: method}
	in := bufio.NewReader(bytes.NewReader(data))
	for n := 0; ; n++ {
		if _, err := in.Peek(1); err != nil {
			return n > 0
		}
		resp, err := http.ReadResponse(in, asked)
		if err != nil {
			return n > 0 && !errors.Is(err, io.ErrUnexpectedEOF)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err != nil || resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && method != http.MethodConnect {
			return false // the body ends with the connection, or later
		}
	}
}
