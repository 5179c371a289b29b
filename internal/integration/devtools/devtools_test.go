package devtools

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// fake is a browser whose answers and events a test chooses.
type fake struct {
	t      *testing.T
	answer func(f *fake, m command) (result any, handled bool)
	ws     *websocket.Conn

	id    int64 // of the command that is answered
	mu    sync.Mutex
	calls []string
}

// command is what the client sends.
type command struct {
	ID        int64
	SessionID string
	Method    string
	Params    map[string]any
}

// browser starts a fake and connects to it.
func browser(t *testing.T, answer func(f *fake, m command) (any, bool)) (*fake, *Conn, context.Context) {
	t.Helper()
	f := &fake{t: t, answer: answer}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	ctx := t.Context()
	c, err := Dial(ctx, server.Client(), "ws"+strings.TrimPrefix(server.URL, "http")+"/devtools/browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return f, c, ctx
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.ws = ws
	for {
		_, data, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		var m command
		if err := json.Unmarshal(data, &m); err != nil {
			f.t.Errorf("the client sent %s: %v", data, err)
			return
		}
		f.mu.Lock()
		f.calls = append(f.calls, m.Method)
		f.mu.Unlock()
		f.id = m.ID
		result, handled := f.answer(f, m)
		if !handled {
			result = map[string]any{
				"Target.createBrowserContext": map[string]any{"browserContextId": "C"},
				"Target.createTarget":         map[string]any{"targetId": "T"},
				"Target.attachToTarget":       map[string]any{"sessionId": "S"},
				"Page.navigate":               map[string]any{"frameId": "T", "loaderId": "L1"},
			}[m.Method]
		}
		if result == nil {
			result = map[string]any{}
		}
		f.send(map[string]any{"id": m.ID, "sessionId": m.SessionID, "result": result})
		if m.Method == "Page.navigate" && !handled {
			f.navigated("L1")
			f.reached("L1", "load")
		}
	}
}

// raw sends one message as it is.
func (f *fake) raw(text string) {
	_ = f.ws.Write(context.Background(), websocket.MessageText, []byte(text))
}

func (f *fake) send(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		f.t.Error(err)
	}
	f.raw(string(data))
}

// event sends an event of the page.
func (f *fake) event(method, params string) {
	f.raw(fmt.Sprintf(`{"sessionId":"S","method":%q,"params":%s}`, method, params))
}

func (f *fake) navigated(loader string) {
	f.event("Page.frameNavigated", fmt.Sprintf(`{"frame":{"id":"T","loaderId":%q}}`, loader))
}

func (f *fake) reached(loader, name string) {
	f.event("Page.lifecycleEvent", fmt.Sprintf(`{"frameId":"T","loaderId":%q,"name":%q}`, loader, name))
}

// called reports whether the client has sent a command.
func (f *fake) called(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, method)
}

// open opens a page whose navigation is answered by navigate. The events that navigate sends come
// before the answer, those of later come after it.
func open(t *testing.T, moment string, navigate func(f *fake) any, later func(f *fake)) (*fake, Answer, error) {
	t.Helper()
	f, c, ctx := browser(t, func(f *fake, m command) (any, bool) {
		switch m.Method {
		case "Page.navigate":
			result := navigate(f)
			f.send(map[string]any{"id": m.ID, "sessionId": m.SessionID, "result": result})
			later(f)
			return nil, true
		case "Page.handleJavaScriptDialog":
			f.reached("L1", "load")
		}
		return nil, false
	})
	page, err := c.NewPage(ctx, 800, 600, true)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := page.Open(ctx, "https://page.test/", moment)
	return f, answer, err
}

// P91: a page counts as open only when the document that was asked for, or the one that it led to,
// has loaded.
func TestOpenWaitsForTheDocument(t *testing.T) {
	started := func(*fake) any { return map[string]any{"frameId": "T", "loaderId": "L1"} }
	response := func(f *fake, status int, headers string) {
		f.event("Network.responseReceived", fmt.Sprintf(`{"requestId":"L1","loaderId":"L1","frameId":"T","type":"Document","response":{"url":"https://page.test/","status":%d,"headers":%s}}`, status, headers))
	}
	for name, c := range map[string]struct {
		moment string
		before func(*fake) any
		later  func(*fake)
		want   Answer
		err    string
	}{
		"an ordinary page": {Loaded, started, func(f *fake) {
			response(f, 200, `{"content-type":"text/html"}`)
			f.navigated("L1")
			f.reached("L1", "load")
		}, Answer{URL: "https://page.test/", Status: 200}, ""},
		"the empty page before loads late": {Loaded, func(f *fake) any {
			f.navigated("L0")
			f.reached("L0", "load")
			return started(f)
		}, func(f *fake) {
			// If the empty page counted, there would be no answer yet.
			response(f, 201, `{}`)
			f.navigated("L1")
			f.reached("L1", "load")
		}, Answer{URL: "https://page.test/", Status: 201}, ""},
		"a script leads to another page": {Loaded, started, func(f *fake) {
			f.navigated("L1")
			f.navigated("L2")
			f.reached("L1", "load") // late, and about a document that is gone
			f.event("Network.responseReceived", `{"requestId":"L2","loaderId":"L2","frameId":"T","type":"Document","response":{"url":"https://page.test/2","status":202}}`)
			f.reached("L2", "load")
		}, Answer{URL: "https://page.test/2", Status: 202}, ""},
		"frames of the page do not count": {Loaded, started, func(f *fake) {
			f.navigated("L1")
			f.event("Page.lifecycleEvent", `{"frameId":"X","loaderId":"L1","name":"load"}`)
			f.event("Page.frameNavigated", `{"frame":{"id":"X","parentId":"T","loaderId":"L9"}}`)
			f.event("Network.responseReceived", `{"requestId":"L9","loaderId":"L9","frameId":"X","type":"Document","response":{"url":"https://frame.test/","status":500}}`)
			response(f, 203, `{}`)
			f.reached("L1", "load")
		}, Answer{URL: "https://page.test/", Status: 203}, ""},
		"idle comes after load": {Idle, started, func(f *fake) {
			f.navigated("L1")
			f.reached("L1", "load")
			response(f, 204, `{}`)
			f.reached("L1", "networkIdle")
		}, Answer{URL: "https://page.test/", Status: 204}, ""},
		"a refusal of the gateway": {Loaded, started, func(f *fake) {
			response(f, 403, `{"x-crannog-blocked":"blocked GET https://page.test/ rule=r"}`)
			f.navigated("L1")
			f.reached("L1", "load")
		}, Answer{"https://page.test/", 403, "blocked GET https://page.test/ rule=r"}, ""},
		"a name that does not exist": {Loaded, func(*fake) any {
			return map[string]any{"frameId": "T", "loaderId": "L1", "errorText": "net::ERR_NAME_NOT_RESOLVED"}
		}, func(*fake) {}, Answer{}, "https://page.test/: net::ERR_NAME_NOT_RESOLVED"},
		"a download": {Loaded, func(*fake) any {
			return map[string]any{"frameId": "T", "loaderId": "L1", "isDownload": true}
		}, func(*fake) {}, Answer{}, "https://page.test/: it is a download and not a page"},
		"a crash": {Loaded, started, func(f *fake) { f.event("Inspector.targetCrashed", `{}`) }, Answer{}, ErrCrashed.Error()},
		"a dialog": {Loaded, started, func(f *fake) {
			f.navigated("L1")
			f.event("Page.javascriptDialogOpening", `{"type":"alert","message":"x"}`)
		}, Answer{}, ""},
		"the browser ends": {Loaded, started, func(f *fake) { _ = f.ws.CloseNow() }, Answer{}, ErrClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			f, answer, err := open(t, c.moment, c.before, c.later)
			if answer != c.want || fmt.Sprint(err) != first(c.err, "<nil>") {
				t.Errorf("got %+v, %v; want %+v, %s", answer, err, c.want, first(c.err, "<nil>"))
			}
			if !f.called("Page.setLifecycleEventsEnabled") {
				t.Error("the client has not asked for the moments of loading")
			}
		})
	}
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// P91: what the browser sends is bounded, and an end of the browser ends every call.
func TestHostileMessages(t *testing.T) {
	for name, m := range map[string]struct {
		send func(f *fake)
		want string // "" means that the call succeeds nevertheless
	}{
		"not JSON":               {func(f *fake) { f.raw("{") }, "closed the connection"},
		"too long":               {func(f *fake) { f.raw(`{"id":-1,"result":"` + strings.Repeat("x", maxMessage) + `"}`) }, "closed the connection"},
		"answers without a call": {func(f *fake) { f.raw(`{"id":999,"result":{}}`); f.raw(`{"id":-1}`); f.raw(`{}`) }, ""},
		"events of no page":      {func(f *fake) { f.raw(`{"sessionId":"Z","method":"Page.frameNavigated","params":{}}`) }, ""},
		"events of other types":  {func(f *fake) { f.event("Page.lifecycleEvent", `{"frameId":7}`); f.event("Page.frameNavigated", `[1]`) }, ""},
		"an error": {func(f *fake) {
			f.raw(fmt.Sprintf(`{"id":%d,"error":{"message":%q}}`, f.id, strings.Repeat("y", 1<<16)))
		}, "Target.getTargetInfo: yyy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, ctx := browser(t, func(f *fake, got command) (any, bool) {
				if got.Method == "Target.getTargetInfo" {
					m.send(f)
					return map[string]any{"targetInfo": map[string]any{"title": strings.Repeat("t", 1<<16), "url": "u"}}, true
				}
				return nil, false
			})
			page, err := c.NewPage(ctx, 800, 600, true)
			if err != nil {
				t.Fatal(err)
			}
			title, address, err := page.Title(ctx)
			switch {
			case m.want == "" && (err != nil || address != "u" || len(title) > maxText+len("…") || !strings.HasPrefix(title, "ttt")):
				t.Errorf("got a title of %d bytes, %q, %v", len(title), address, err)
			case m.want != "" && (err == nil || !strings.Contains(err.Error(), m.want) || len(err.Error()) > 2*maxText):
				t.Errorf("got %.300v, want an error with %q", err, m.want)
			}
		})
	}
}

// A deadline ends a call that the browser never answers.
func TestCallEndsWithContext(t *testing.T) {
	stuck, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	_, c, ctx := browser(t, func(_ *fake, m command) (any, bool) {
		if m.Method == "Page.navigate" {
			close(stuck)
			<-ended
		}
		return nil, false
	})
	page, err := c.NewPage(ctx, 800, 600, false)
	if err != nil {
		t.Fatal(err)
	}
	because := errors.New("the person has waited long enough")
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { <-stuck; cancel(because) }()
	if _, err := page.Open(ctx, "https://page.test/", Loaded); !errors.Is(err, because) {
		t.Errorf("got %v, want %v", err, because)
	}
}

// P91: a file has the format that was asked for, and a bounded size.
func TestCaptures(t *testing.T) {
	png, pdf := "\x89PNG\r\n\x1a\nrest", "%PDF-1.4 "
	clip := map[string]any{}
	var chunks []map[string]any
	shot := png
	_, c, ctx := browser(t, func(_ *fake, m command) (any, bool) {
		switch m.Method {
		case "Page.getLayoutMetrics":
			return map[string]any{"cssContentSize": map[string]any{"width": 800, "height": 1e9}}, true
		case "Page.captureScreenshot":
			clip, _ = m.Params["clip"].(map[string]any)
			return map[string]any{"data": base64.StdEncoding.EncodeToString([]byte(shot))}, true
		case "Page.printToPDF":
			return map[string]any{"stream": "1"}, true
		case "IO.read":
			next := chunks[0]
			if len(chunks) > 1 {
				chunks = chunks[1:]
			}
			return next, true
		}
		return nil, false
	})
	page, err := c.NewPage(ctx, 800, 600, true)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if cut, err := page.Screenshot(ctx, false, &out); err != nil || cut || out.String() != png || clip != nil {
		t.Errorf("window: got %q, %v, %v, clip %v", out.String(), cut, err, clip)
	}
	out.Reset()
	if cut, err := page.Screenshot(ctx, true, &out); err != nil || !cut || out.String() != png || clip["height"] != float64(maxSide) || clip["width"] != float64(800) {
		t.Errorf("full page: got %q, cut %v, %v, clip %v", out.String(), cut, err, clip)
	}
	shot = "<html>"
	if _, err := page.Screenshot(ctx, false, &out); !errors.Is(err, errFormat) {
		t.Errorf("another format: got %v, want %v", err, errFormat)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(pdf))
	for name, p := range map[string]struct {
		chunks []map[string]any
		want   string
		err    error
	}{
		"two parts":          {[]map[string]any{{"data": encoded, "base64Encoded": true}, {"data": "end", "eof": true}}, pdf + "end", nil},
		"another format":     {[]map[string]any{{"data": "<html>", "eof": true}}, "", errFormat},
		"nothing, and again": {[]map[string]any{{"data": pdf}, {"data": ""}}, pdf, errFormat},
	} {
		chunks = p.chunks
		out.Reset()
		if err := page.PDF(ctx, &out); !errors.Is(err, p.err) || out.String() != p.want {
			t.Errorf("PDF, %s: got %q, %v; want %q, %v", name, out.String(), err, p.want, p.err)
		}
	}
	// A PDF without an end is cut off.
	chunks = []map[string]any{{"data": pdf + strings.Repeat("x", 16<<20)}}
	if err := page.PDF(ctx, discard{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an endless PDF: got %v, want an error about its size", err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
