package ingress_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

var stars = strings.Repeat("*", len(sealedValue))

// withAndWithoutRedactor runs a test without a redactor, as a control, and with one. shown is the
// text that the client gets in place of sealedValue.
func (w *testProxy) withAndWithoutRedactor(t *testing.T, do func(t *testing.T, shown string)) {
	t.Helper()
	w.setRedactor(nil)
	t.Run("control", func(t *testing.T) { do(t, sealedValue) })
	w.setRedactor(valueMask(t))
	t.Run("masked", func(t *testing.T) { do(t, stars) })
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.Bytes()
}

// TestDownloadsAreRedacted checks that a file is redacted with its length unchanged, also if a
// client requests it compressed or in parts, and also if an attacker has replaced the guest.
func TestDownloadsAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	content := strings.Repeat("x", 100_000) + sealedValue + strings.Repeat("y", 50_000) + knownToken
	files := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/octet-stream")
		switch {
		case r.URL.Query().Has("unasked-gzip"), r.Header.Get("Accept-Encoding") == "gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(zipped(content))
		default:
			http.ServeContent(rw, r, "f", time.Time{}, strings.NewReader(content))
		}
	})
	w.serve(boxID, guestboot.Port, files)
	w.serve(boxID, 3000, files)
	w.withAndWithoutRedactor(t, func(t *testing.T, shown string) {
		want := strings.ReplaceAll(content, sealedValue, shown)
		for _, port := range []int{guestboot.Port, 3000} {
			r := w.request(t, port, "GET", "/files")
			r.Header.Set("Accept-Encoding", "identity")
			a := w.send(t, r)
			if a.text != want || a.Header.Get("Content-Length") != strconv.Itoa(len(content)) {
				t.Errorf("port %d: %d bytes, length %q", port, len(a.text), a.Header.Get("Content-Length"))
			}
			if a := w.send(t, w.request(t, port, "HEAD", "/files")); a.Header.Get("Content-Length") != strconv.Itoa(len(content)) {
				t.Errorf("port %d: HEAD: %v", port, a.Header)
			}
			for _, query := range []string{"", "?unasked-gzip"} {
				r := w.request(t, port, "GET", "/files"+query)
				r.Header.Set("Accept-Encoding", "gzip")
				a := w.send(t, r)
				if a.Header.Get("Content-Encoding") == "gzip" {
					z, err := gzip.NewReader(strings.NewReader(a.text))
					if err != nil {
						t.Fatal(err)
					}
					plain, err := io.ReadAll(z)
					if a.text = string(plain); err != nil {
						t.Fatal(err)
					}
					if shown == stars {
						t.Errorf("port %d%s: compressed", port, query)
					}
				}
				if a.text != want {
					t.Errorf("port %d%s: gzip: %d bytes differ", port, query, len(a.text))
				}
			}
			// A part that begins in the middle of a value could not be recognised.
			r = w.request(t, port, "GET", "/files")
			r.Header.Set("Range", "bytes=100004-100012")
			a = w.send(t, r)
			if shown == sealedValue && (a.StatusCode != http.StatusPartialContent || a.text != sealedValue[4:13]) {
				t.Errorf("port %d: a range without a redactor: %d %.40q", port, a.StatusCode, a.text)
			}
			if shown == stars && (a.StatusCode != http.StatusOK || a.text != want) {
				t.Errorf("port %d: a range: %d %.40q", port, a.StatusCode, a.text)
			}
		}
	})
}

// TestUndecodableResponsesAreBlocked checks responses in an encoding that the proxy cannot decode.
func TestUndecodableResponsesAreBlocked(t *testing.T) {
	w := newTestProxy(t)
	answer := func(head string, body []byte, status int) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", head)
			rw.WriteHeader(status)
			_, _ = rw.Write(body)
		})
	}
	for name, h := range map[string]http.Handler{
		"br":           answer("br", []byte(sealedValue), 200),
		"twice":        answer("gzip, gzip", zipped(string(zipped(sealedValue))), 200),
		"part of gzip": answer("gzip", zipped(sealedValue), 206),
	} {
		w.serve(boxID, 3000, h)
		w.setRedactor(nil)
		if a := w.send(t, w.request(t, 3000, "GET", "/")); a.StatusCode >= 300 {
			t.Errorf("%s without a redactor: %d", name, a.StatusCode)
		}
		w.setRedactor(valueMask(t))
		a := w.send(t, w.request(t, 3000, "GET", "/"))
		if a.StatusCode != http.StatusBadGateway || !strings.Contains(a.text, "could not be redacted") || strings.Contains(a.text, sealedValue) {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.text)
		}
	}
	// A response that only claims to be gzip ends with an error.
	w.serve(boxID, 3000, answer("gzip", []byte("no gzip: "+sealedValue), 200))
	res, err := w.front.Client().Do(w.request(t, 3000, "GET", "/"))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
		if bytes.Contains(body, []byte(sealedValue[:8])) {
			t.Errorf("body: got %q", body)
		}
	}
	if err == nil {
		t.Error("a response with invalid gzip data ended without an error")
	}
}

// TestHeadersAreRedacted checks the headers of a response, of an early response, of trailers, and
// of the response that switches the protocol.
func TestHeadersAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	w.serve(boxID, 3000, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		if r.URL.Path == "/switch" {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 "+sealedValue+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Key: "+sealedValue+"\r\n\r\n")
			return
		}
		h.Set("Link", "<"+sealedValue+">")
		rw.WriteHeader(http.StatusEarlyHints)
		h.Set("Trailer", "X-Announced")
		h.Set("X-Key", "v="+sealedValue)
		h.Set("X-"+strings.ToUpper(strings.ReplaceAll(sealedValue, "/", "")), "1")
		_, _ = io.WriteString(rw, "ok")
		h.Set("X-Announced", sealedValue)
		h.Set(http.TrailerPrefix+"X-Late", sealedValue)
	}))
	w.withAndWithoutRedactor(t, func(t *testing.T, shown string) {
		early := ""
		trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			early = h.Get("Link")
			return nil
		}}
		r := w.request(t, 3000, "GET", "/")
		res, err := w.front.Client().Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		if early != "<"+shown+">" || res.Header.Get("X-Key") != "v="+shown || res.Trailer.Get("X-Announced") != shown || res.Trailer.Get("X-Late") != shown {
			t.Errorf("early %q, header %q, trailers %v", early, res.Header.Get("X-Key"), res.Trailer)
		}
		_, reader := w.raw(t, strings.ReplaceAll(strings.ReplaceAll(upgradeRequest, "4000", "3000"), "/ws", "/switch"))
		head, err := textproto.NewReader(reader).ReadLine()
		if err != nil || strings.Contains(head, sealedValue) == (shown == stars) {
			t.Errorf("status line %q, %v", head, err)
		}
		rest, err := textproto.NewReader(reader).ReadMIMEHeader()
		if err != nil || rest.Get("X-Key") != shown {
			t.Errorf("trailers: got %v, %v", rest, err)
		}
	})
}

// TestUpgradedConnectionsAreRedacted checks that data is redacted with its length unchanged, even
// if the halves of a value arrive at different times. Other data is passed on at once.
func TestUpgradedConnectionsAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	extensions := make(chan string, 2)
	w.serve(boxID, 4000, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		extensions <- r.Header.Get("Sec-Websocket-Extensions")
		switcher(rw, r)
	}))
	w.withAndWithoutRedactor(t, func(t *testing.T, shown string) {
		conn, reader := w.raw(t, strings.ReplaceAll(upgradeRequest, "Upgrade: websocket", "Upgrade: websocket\nSec-WebSocket-Extensions: permessage-deflate"))
		if got := <-extensions; (got == "") != (shown == stars) {
			t.Errorf("extensions %q", got)
		}
		if res, err := http.ReadResponse(reader, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("upgrade: got %v, %v", res, err)
		}
		sendAndExpect := func(text, want string) {
			t.Helper()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(reader, got); err != nil || string(got) != want {
				t.Errorf("%q comes back as %q, %v; want %q", text, got, err, want)
			}
		}
		sendAndExpect("t", "t")
		sendAndExpect("k-Zr ", "k-Zr ")
		if shown == stars {
			sendAndExpect("\x81\x17"+sealedValue[:9], "\x81\x17")
			sendAndExpect(sealedValue[9:]+"!", stars+"!")
			return
		}
		sendAndExpect("\x81\x17"+sealedValue[:9], "\x81\x17"+sealedValue[:9])
		sendAndExpect(sealedValue[9:]+"!", sealedValue[9:]+"!")
	})
}

// TestNothingIsForwardedWithoutRedactor checks that, while the values to redact are unknown, no
// request is sent and no response passes.
func TestNothingIsForwardedWithoutRedactor(t *testing.T) {
	w := newTestProxy(t)
	w.mu.Lock()
	w.sandboxes[boxID].lost = errors.New("the vault is closed")
	w.mu.Unlock()
	for _, port := range []int{guestboot.Port, guestboot.InterpreterPort, 3000} {
		before := w.dials.Load()
		a := w.send(t, w.request(t, port, "GET", "/files"))
		if a.StatusCode != http.StatusInternalServerError || !strings.Contains(a.text, "cannot be redacted") || strings.Contains(a.text, "vault") ||
			w.dials.Load() != before {
			t.Errorf("port %d: %d %s", port, a.StatusCode, a.text)
		}
	}
	// Clients of the services get the error text.
	for name, options := range protocols {
		before := w.dials.Load()
		s, err := w.processes(t, options...).Start(t.Context(), connect.NewRequest(&pb.StartRequest{}))
		if err == nil {
			for s.Receive() {
				t.Errorf("%s: %v", name, s.Msg())
			}
			err = s.Err()
		}
		_, listErr := w.processes(t, options...).List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
		for _, err := range []error{err, listErr} {
			if err == nil || !strings.Contains(name, "grpc") && (connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), "cannot be redacted")) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w.dials.Load() != before {
			t.Errorf("%s: a request was sent to the sandbox", name)
		}
	}
	w.mu.Lock()
	w.sandboxes[boxID].lost = nil
	w.mu.Unlock()
	if a := w.send(t, w.request(t, 3000, "GET", "/")); a.StatusCode != http.StatusOK {
		t.Errorf("control: got status %d, want 200", a.StatusCode)
	}
}

// TestPatternsDoNotChangeFiles checks that patterns apply only to the output of programs: a file
// that looks like a token arrives unchanged, and can be requested in parts.
func TestPatternsDoNotChangeFiles(t *testing.T) {
	w := newTestProxy(t)
	files := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Encoding", r.Header.Get("Accept-Encoding"))
		http.ServeContent(rw, r, "f", time.Time{}, strings.NewReader(knownToken))
	})
	w.serve(boxID, guestboot.Port, files)
	w.serve(boxID, 3000, files)
	w.setRedactor(maskOf(t, sandbox.RedactorOptions{Outputs: true, Patterns: true}))
	for _, port := range []int{guestboot.Port, 3000} {
		r := w.request(t, port, "GET", "/files")
		r.Header.Set("Accept-Encoding", "gzip, br")
		if a := w.send(t, r); a.text != knownToken || a.Header.Get("X-Encoding") != "gzip, br" {
			t.Errorf("port %d: %q, %v", port, a.text, a.Header)
		}
		r.Header.Set("Range", "bytes=4-9")
		if a := w.send(t, r); a.text != knownToken[4:10] {
			t.Errorf("port %d: %q", port, a.text)
		}
	}
}
