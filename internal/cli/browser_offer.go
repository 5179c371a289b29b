package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/integration/devtools"
)

// offered is what crannog browser --json prints before it waits.
type offered struct {
	Sandbox string `json:"sandbox"`
	URL     string `json:"url"`
	CDP     string `json:"cdp"`
}

// offerBrowser serves the browser's DevTools port on this machine until the command is interrupted.
func (a browserVerbs) offerBrowser(ctx context.Context, sb *crannog.Sandbox, conn *devtools.Conn, v *visit) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fail("listen for clients", err)
	}
	token := rand.Text()
	server := &http.Server{Handler: devToolsProxy(sb.HTTPClient().Transport, token), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close() // clients lose their browser anyway
		<-served
	}()
	address := "ws://" + listener.Addr().String() + "/" + token + "/devtools/browser"
	if err := a.printOffer(sb, v, address); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil // the interrupt is the orderly end
		case err := <-served:
			served <- err
			return fail("serve clients", err)
		case <-conn.Ended():
		}
		// The browser may have crashed, and is started again with its sandbox as it is.
		if info, err := sb.Refresh(ctx); err != nil {
			return fail("reach the sandbox", err)
		} else if err := checkRunning(info); err != nil {
			return err
		}
		again, err := devtools.Dial(ctx, sb.HTTPClient(), fmt.Sprintf("ws://localhost:%d/devtools/browser", guestboot.DevToolsPort))
		if err != nil {
			return fail("reach the browser again", err)
		}
		defer again.Close()
		a.note("the browser has ended and was started again; its pages are gone")
		conn = again
	}
}

// printOffer prints the address, and how to use it.
func (a browserVerbs) printOffer(sb *crannog.Sandbox, v *visit, address string) error {
	if a.json {
		return a.object(offered{sb.ID(), v.url, address})
	}
	if a.quiet {
		_, err := fmt.Fprintln(a.Stdout, address)
		return err
	}
	a.note("sandbox %s has a browser until this command is interrupted", sb.ID())
	_, err := fmt.Fprintf(a.Stdout, "CDP         %[1]s\n"+
		"Playwright  const browser = await chromium.connectOverCDP('%[1]s')\n"+
		"Puppeteer   const browser = await puppeteer.connect({ browserWSEndpoint: '%[1]s' })\n", address)
	return err
}

// devToolsProxy passes requests below /TOKEN/ to the DevTools port of a sandbox. Other users of this
// machine can connect to the port too, and do not know the token.
func devToolsProxy(transport http.RoundTripper, token string) http.Handler {
	prefix := "/" + token
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "localhost:"+strconv.Itoa(guestboot.DevToolsPort)
			pr.Out.URL.Path, pr.Out.URL.RawPath = strings.TrimPrefix(pr.In.URL.Path, prefix), ""
			// The browser answers with addresses below the prefix.
			pr.Out.Host = pr.In.Host
			pr.Out.Header.Set("X-Forwarded-Prefix", prefix)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the sandbox gave no answer; it may have ended", http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			http.Error(w, "the address lacks the token that crannog browser printed", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
