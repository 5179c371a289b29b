package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// browserPath is the path of the browser target, whichever browser runs. StatusPath is that of
// Status.
const (
	browserPath = "/devtools/browser"
	StatusPath  = "/crannog/status"
)

const (
	// waitForBrowser is how long a request waits for a browser that is being started.
	waitForBrowser = 30 * time.Second
	// maxList bounds the lists of targets, whose titles and addresses are chosen by pages.
	maxList = 16 << 20
)

// front serves the DevTools protocol of the running browser.
type front struct {
	browser *supervisor
	trust   *trust
	proxy   *httputil.ReverseProxy
}

func newFront(s *supervisor, t *trust) *front {
	f := &front{browser: s, trust: t}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: rewriteAnswer,
		Transport:      again{s},
		FlushInterval:  -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the browser gave no answer; it may have just ended", http.StatusBadGateway)
		},
	}
	return f
}

// visit is one request: the browser that it is for, and the WebSocket address by which its sender
// reached this port.
type visit struct {
	endpoint
	base *url.URL
}

type visitKey struct{}

func visitOf(r *http.Request) visit {
	v, _ := r.Context().Value(visitKey{}).(visit)
	return v
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A page in the browser can send requests to this port too. Chromium's own check of the Host
	// header no longer protects it here, so everything that a page sends is refused: its WebSockets
	// have an Origin, and Chromium marks its other requests. Node.js marks its own ones too, but not
	// with a site.
	if len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0 {
		http.Error(w, "pages may not use the DevTools port", http.StatusForbidden)
		return
	}
	if r.URL.Path == StatusPath {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(f.browser.status())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitForBrowser)
	defer cancel()
	// A restored sandbox has another certificate of the gateway. It is installed before the first
	// client can navigate.
	if err := f.trust.update(ctx); err != nil {
		http.Error(w, "install the certificate of the egress gateway: "+err.Error(), http.StatusInternalServerError)
		return
	}
	e, err := f.browser.wait(ctx, endpoint{})
	if err != nil {
		http.Error(w, "the browser is not running", http.StatusServiceUnavailable)
		return
	}
	f.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, visit{e, baseOf(r)})))
}

// again sends a request a second time if the browser ended before it answered. The browser's end is
// noticed a little later than a client can connect again.
type again struct{ browser *supervisor }

// RoundTrip implements http.RoundTripper.
func (t again) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil || r.Method != http.MethodGet {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitForBrowser)
	defer cancel()
	old := visitOf(r).endpoint
	next, waitErr := t.browser.wait(ctx, old)
	if waitErr != nil {
		return nil, err
	}
	second := r.Clone(r.Context())
	second.URL.Host, second.Host = next.host, next.host
	if second.URL.Path == old.path {
		second.URL.Path = next.path
	}
	return http.DefaultTransport.RoundTrip(second)
}

// rewrite directs a request to the browser, under a name that Chromium accepts.
func rewrite(pr *httputil.ProxyRequest) {
	e := visitOf(pr.In)
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", e.host, e.host
	if p := strings.TrimSuffix(pr.In.URL.Path, "/"); p == browserPath || p == "" && pr.In.Header.Get("Upgrade") != "" {
		pr.Out.URL.Path, pr.Out.URL.RawPath = e.path, ""
	}
	pr.Out.Header.Del("Accept-Encoding")
}

// rewriteAnswer replaces Chromium's address in lists of targets with the one that the client used.
func rewriteAnswer(r *http.Response) error {
	path := strings.TrimSuffix(r.Request.URL.Path, "/")
	if r.StatusCode != http.StatusOK || path != "/json" && !strings.HasPrefix(path, "/json/") {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxList+1))
	_ = r.Body.Close()
	if err != nil {
		return err
	}
	if len(data) > maxList {
		return fmt.Errorf("the list of targets has more than %d bytes", maxList)
	}
	var list any
	if json.Unmarshal(data, &list) == nil { // some answers are plain text
		readdress(list, visitOf(r.Request))
		if data, err = json.Marshal(list); err != nil {
			return err
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	r.Header.Del("Content-Length")
	return nil
}

// baseOf returns the WebSocket address by which the client reached this port. A proxy in front of the
// server names its own protocol, and the command line the path below which it serves.
func baseOf(r *http.Request) *url.URL {
	base := &url.URL{Scheme: "ws", Host: r.Host, Path: strings.TrimSuffix(r.Header.Get("X-Forwarded-Prefix"), "/") + "/"}
	if r.Header.Get("X-Forwarded-Proto") == "https" {
		base.Scheme = "wss"
	}
	return base
}

// readdress changes the addresses in an answer. Only the address of the browser itself is stable
// across restarts, so it gets the stable path.
func readdress(v any, to visit) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			readdress(x, to)
		}
	case map[string]any:
		// Chromium's own frontend cannot send the token.
		delete(v, "devtoolsFrontendUrl")
		delete(v, "devtoolsFrontendUrlCompat")
		s, _ := v["webSocketDebuggerUrl"].(string)
		u, err := url.Parse(s)
		if s == "" || err != nil {
			return
		}
		if u.Path == to.path {
			u.Path = browserPath
		}
		v["webSocketDebuggerUrl"] = to.base.JoinPath(u.Path).String()
	}
}
