package git

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
)

// The content types of requests, and of responses with a list of refs.
const (
	fetchType = "application/x-git-upload-pack-request"
	pushType  = "application/x-git-receive-pack-request"
)

// The services of the protocol.
const (
	UploadPack  = "git-upload-pack"  // fetches
	ReceivePack = "git-receive-pack" // pushes
)

// ownHeaders are the headers that git and similar libraries send. Other headers can change the
// meaning of a request, for example by overriding the method.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length",
	"Content-Type", "Expect", "Git-Protocol", "Keep-Alive", "Pragma", "Proxy-Connection", "Te", "Transfer-Encoding", "User-Agent",
}

// Endpoint is one service of one repository.
type Endpoint struct {
	// Base is the escaped path of the repository in the request, such as /acme/pay.git.
	Base    string
	Service string
}

// Exact returns the operation of a request if method, path, query, content type and headers all
// match the protocol. The result holds only if the server is a git server; a program could send
// other requests in this form to a server that accepts them. Advertises checks the server by its
// answer to the list of refs.
func Exact(method, escapedPath, query string, h http.Header) (Operation, Endpoint) {
	for name := range h {
		if !slices.Contains(ownHeaders, name) {
			return None, Endpoint{}
		}
	}
	types := h["Content-Type"]
	for _, c := range []struct {
		op                             Operation
		method, path, query, mediaType string
		service                        string
	}{
		{FetchRefs, http.MethodGet, "/info/refs", "service=" + UploadPack, "", UploadPack},
		{PushRefs, http.MethodGet, "/info/refs", "service=" + ReceivePack, "", ReceivePack},
		{Fetch, http.MethodPost, "/" + UploadPack, "", fetchType, UploadPack},
		{Push, http.MethodPost, "/" + ReceivePack, "", pushType, ReceivePack},
	} {
		base, ok := strings.CutSuffix(escapedPath, c.path)
		// An escape in the base could name another repository than the one whose rule matches the
		// decoded path.
		if !ok || len(base) < 2 || base[0] != '/' || strings.Contains(base, "%") || method != c.method || query != c.query {
			continue
		}
		if c.mediaType == "" && len(types) == 0 || len(types) == 1 && types[0] == c.mediaType {
			return c.op, Endpoint{base, c.service}
		}
	}
	return None, Endpoint{}
}

// advertisementHead limits how much of a list of refs is inspected.
const advertisementHead = 64

// Advertises reports whether a response to FetchRefs or PushRefs shows that the endpoint exists.
// The content type alone is not enough, because some object stores return any requested content
// type. The returned reader has the complete response.
func Advertises(service string, status int, contentTypes []string, answer io.Reader) (io.Reader, bool) {
	if status != http.StatusOK || len(contentTypes) != 1 || contentTypes[0] != "application/x-"+service+"-advertisement" {
		return answer, false
	}
	r := bufio.NewReaderSize(answer, advertisementHead)
	first := appendPacket(nil, []byte("# service="+service+"\n"))
	head, _ := r.Peek(len(first)) // an error is returned again by the next read
	version := bytes.HasPrefix(head, []byte("000eversion 1\n")) || bytes.HasPrefix(head, []byte("000eversion 2\n"))
	return r, version || bytes.Equal(head, first)
}
