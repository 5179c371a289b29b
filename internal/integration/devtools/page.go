package devtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxLoaders is the number of documents that a page remembers.
const maxLoaders = 64

// Page is one page of the browser.
type Page struct {
	conn    *Conn
	target  string
	session string

	mu      sync.Mutex
	frame   string   // the main frame, whose ID is that of the target
	loaders []string // the last documents of the main frame, the current one last
	reached map[string]bool
	answer  Answer
	crashed bool
	changed chan struct{} // closed and replaced when the state changes
}

// Answer is the response that has become the page's document.
type Answer struct {
	URL    string
	Status int // 0 without a request, such as for about:blank
	// Blocked is what the egress gateway says about its refusal. A hostile server can send the same
	// header, and gains nothing but that its own page is reported as refused.
	Blocked string
}

// blockedHeader is the header in which the egress gateway names the rule of a refusal.
const blockedHeader = "X-Crannog-Blocked"

// Moments of a page's loading.
const (
	Loaded = "load"        // all that the document names has loaded
	Idle   = "networkIdle" // no request was open for half a second
)

// NavigationError is the error of a page that did not open.
type NavigationError struct {
	URL    string
	Reason string // Chromium's, such as net::ERR_NAME_NOT_RESOLVED
}

// Error implements error.
func (e *NavigationError) Error() string { return e.URL + ": " + e.Reason }

// ErrCrashed means that the process that renders the page has ended.
var ErrCrashed = errors.New("the page has crashed")

// NewPage opens an empty page with a window of the given size. An isolated page shares no cookies
// with others, and is closed with the connection.
func (c *Conn) NewPage(ctx context.Context, width, height int, isolated bool) (*Page, error) {
	create := map[string]any{"url": "about:blank"}
	if isolated {
		var made struct{ BrowserContextID string }
		if err := c.call(ctx, "", "Target.createBrowserContext", map[string]any{"disposeOnDetach": true}, &made); err != nil {
			return nil, err
		}
		create["browserContextId"] = made.BrowserContextID
	}
	var made struct{ TargetID string }
	if err := c.call(ctx, "", "Target.createTarget", create, &made); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := c.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	p := &Page{conn: c, target: made.TargetID, session: attached.SessionID, frame: made.TargetID, reached: map[string]bool{}, changed: make(chan struct{})}
	c.mu.Lock()
	c.pages[p.session] = p
	c.mu.Unlock()
	for _, enable := range []struct {
		method string
		params any
	}{
		{"Page.enable", nil},
		{"Network.enable", map[string]any{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0}},
		{"Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}},
		{"Emulation.setScrollbarsHidden", map[string]any{"hidden": true}},
	} {
		if err := p.call(ctx, enable.method, enable.params, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Page) call(ctx context.Context, method string, params, result any) error {
	return p.conn.call(ctx, p.session, method, params, result)
}

// Open navigates to an address and waits for a moment of its loading, which is Loaded or Idle. A
// script may lead to other pages before that: the page that is there in the end counts.
func (p *Page) Open(ctx context.Context, address, moment string) (Answer, error) {
	// The browser answers once the response's headers are there. The caller's deadline bounds that.
	var s struct {
		LoaderID   string
		ErrorText  string
		IsDownload bool
	}
	err := p.call(ctx, "Page.navigate", map[string]any{"url": address}, &s)
	switch {
	case err != nil:
		return Answer{}, err
	case s.ErrorText != "":
		return p.current(), &NavigationError{shortened(address), shortened(s.ErrorText)}
	case s.IsDownload:
		return p.current(), &NavigationError{shortened(address), "it is a download and not a page"}
	case s.LoaderID == "":
		return p.current(), nil // the same document
	}
	return p.wait(ctx, s.LoaderID, moment)
}

// wait waits until the document of a navigation is there, and it or its successor has reached a
// moment of its loading.
func (p *Page) wait(ctx context.Context, loader, moment string) (Answer, error) {
	arrived := false // the empty page before also loads
	for {
		p.mu.Lock()
		changed, answer, crashed := p.changed, p.answer, p.crashed
		arrived = arrived || slices.Contains(p.loaders, loader)
		done := arrived && p.reached[moment]
		p.mu.Unlock()
		switch {
		case crashed:
			return answer, ErrCrashed
		case done:
			return answer, nil
		}
		select {
		case <-changed:
		case <-p.conn.ended:
			return answer, ErrClosed
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
	}
}

// current returns the answer that arrived last.
func (p *Page) current() Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer
}

// event changes the page's state. Events that cannot be read change nothing.
func (p *Page) event(method string, params json.RawMessage) {
	var e struct {
		FrameID  string
		LoaderID string
		Name     string
		Type     string
		Request  string `json:"requestId"`
		Frame    struct{ ID, LoaderID, ParentID string }
		Response struct {
			URL     string
			Status  int
			Headers map[string]string
		}
	}
	switch method {
	case "Page.javascriptDialogOpening":
		// A dialog holds up the page until it is answered. There is at most one at a time.
		go func() {
			_ = p.call(context.Background(), "Page.handleJavaScriptDialog", map[string]any{"accept": false}, nil)
		}()
		return
	case "Page.lifecycleEvent", "Page.frameNavigated", "Network.responseReceived", "Inspector.targetCrashed":
		if len(params) > 0 && json.Unmarshal(params, &e) != nil {
			return
		}
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Page.frameNavigated":
		if e.Frame.ID != p.frame {
			return
		}
		if len(p.loaders) == maxLoaders {
			p.loaders = slices.Delete(p.loaders, 0, 1)
		}
		p.loaders = append(p.loaders, e.Frame.LoaderID)
		clear(p.reached)
	case "Page.lifecycleEvent":
		if e.FrameID != p.frame || len(p.loaders) == 0 || e.LoaderID != p.loaders[len(p.loaders)-1] || e.Name != Loaded && e.Name != Idle {
			return
		}
		p.reached[e.Name] = true
	case "Network.responseReceived":
		// The request of a document has the ID of its loader.
		if e.FrameID != p.frame || e.Type != "Document" || e.Request != e.LoaderID {
			return
		}
		p.answer = Answer{URL: shortened(e.Response.URL), Status: e.Response.Status}
		for name, value := range e.Response.Headers {
			if strings.EqualFold(name, blockedHeader) {
				p.answer.Blocked = shortened(value)
			}
		}
	case "Inspector.targetCrashed":
		p.crashed = true
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Title returns the title and the address of the page.
func (p *Page) Title(ctx context.Context) (title, address string, err error) {
	var got struct {
		TargetInfo struct{ Title, URL string }
	}
	if err := p.conn.call(ctx, "", "Target.getTargetInfo", map[string]any{"targetId": p.target}, &got); err != nil {
		return "", "", fmt.Errorf("read the title: %w", err)
	}
	return shortened(got.TargetInfo.Title), shortened(got.TargetInfo.URL), nil
}
