// Package fetch owns the download of one URL inside a sandbox, for ADD in a Dockerfile. It runs as
// "crannog-guest fetch LIMIT URL FILE" in a sandbox without other programs, so that the sandbox's
// policy decides about each request and redirection, and a hostile server meets no process of the
// host.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/host/text"
)

// Role is the first argument that selects this program.
const Role = "fetch"

// Args returns the command line that downloads an address to a file of the sandbox, after the
// program's name. limit is the largest accepted size in bytes.
func Args(address, file string, limit int64) []string {
	return []string{Role, strconv.FormatInt(limit, 10), address, file}
}

const (
	// maxRedirects bounds the number of redirections, as other builders do.
	maxRedirects = 10
	connectTime  = 30 * time.Second
	headerTime   = 2 * time.Minute
	// shownText bounds the text of a server that an error shows, in bytes.
	shownText = 300
)

// Main runs the program and returns its exit code. Errors are one line on out.
func Main(args []string, out io.Writer) int {
	if err := run(args, nil); err != nil {
		_, _ = fmt.Fprintln(out, text.Strict(err.Error(), 2*shownText))
		return 1
	}
	return 0
}

// run parses the arguments and downloads. transport is for tests; nil is the program's own one.
func run(args []string, transport http.RoundTripper) error {
	if len(args) != 3 {
		return errors.New("usage: crannog-guest fetch LIMIT URL FILE")
	}
	limit, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%q is not a number of bytes", args[0])
	}
	return download(context.Background(), client(transport), args[1], args[2], limit)
}

// client returns the HTTP client. It asks for no compression, because the file consists of the
// bytes that the server stores.
func client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTime}).DialContext,
			TLSHandshakeTimeout: connectTime, ResponseHeaderTimeout: headerTime, DisableCompression: true, ForceAttemptHTTP2: true,
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

// checkRedirect refuses a redirection from HTTPS to HTTP. An attacker in the network could change
// a file that is requested without TLS.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirections", maxRedirects)
	}
	if r.URL.Scheme != "https" && (r.URL.Scheme != "http" || via[0].URL.Scheme == "https") {
		return fmt.Errorf("a redirection to %s:// is not followed", r.URL.Scheme)
	}
	return nil
}

// download writes the content of an address to a new file. The file's time is the server's
// Last-Modified, or 1970.
func download(ctx context.Context, c *http.Client, address, file string, limit int64) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		// The method and the address are in the build's step.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		head, _ := io.ReadAll(io.LimitReader(resp.Body, shownText))
		return fmt.Errorf("%s answers with status %d: %s", resp.Request.URL.Host, resp.StatusCode, head)
	}
	if resp.ContentLength > limit {
		return fmt.Errorf("the file has %d bytes, and the limit is %d", resp.ContentLength, limit)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err == nil {
			at := modified(resp)
			err = os.Chtimes(file, at, at)
		}
	}()
	n, err := io.Copy(f, io.LimitReader(resp.Body, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("the file is larger than the limit of %d bytes", limit)
	}
	return err
}

// modified returns the time of a file that its server states.
func modified(resp *http.Response) time.Time {
	at, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil || at.Unix() < 0 {
		return time.Unix(0, 0)
	}
	return at
}
