package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var errStopWatching = errors.New("enough")

// events collects n events.
func (r *rig) events(caller approval.Caller, after int64, n int) []approval.Event {
	r.t.Helper()
	var events []approval.Event
	ctx, cancel := context.WithTimeout(r.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	err := r.Watch(ctx, caller, approval.Query{}, after, func(e approval.Event) error {
		if events = append(events, e); len(events) == n {
			return errStopWatching
		}
		return nil
	})
	if n > 0 && !errors.Is(err, errStopWatching) {
		r.t.Errorf("Watch: got %d events, then %v, want %d events", len(events), err, n)
	}
	return events
}

func types(events []approval.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.Type)
	}
	return list
}

func TestWatchResumesAfterEvent(t *testing.T) {
	r := newRig(t, t.TempDir())
	first := r.ask(postRequest())
	r.approve(first.Approval)
	r.spend(postRequest())
	q := postRequest()
	q.Sandbox = "mine"
	r.ask(q)
	all := r.events(local, 0, 5)
	if want := []string{"pending", "vote", "approved", "spent", "pending"}; !slices.Equal(types(all), want) {
		t.Fatalf("event types: got %v, want %v", types(all), want)
	}
	if later := r.events(local, all[2].Seq, 2); !slices.Equal(types(later), []string{"spent", "pending"}) {
		t.Errorf("events after %d: got %v, want spent, pending", all[2].Seq, types(later))
	}
	if visible := r.events(approval.Caller{KeyID: "k1"}, all[2].Seq, 1); visible[0].Approval.ID != first.Approval {
		t.Errorf("events of key k1: got %+v, want approval %s", visible, first.Approval)
	}
	// With FromNow, only open requests are reported first.
	if open := r.events(local, approval.FromNow, 1); open[0].Approval.Sandbox != "mine" || open[0].Seq != all[4].Seq {
		t.Errorf("open requests: got %+v, want the pending one of sandbox mine", open)
	}
}

// A watcher notices changes by this process at once, and changes by other processes and expiries
// soon.
func TestWatchReportsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, other := newRig(t, dir), newRig(t, dir)
		events := make(chan approval.Event, 10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- r.Watch(ctx, local, approval.Query{}, approval.FromNow, func(e approval.Event) error { events <- e; return nil })
		}()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		started := time.Now()
		q := postRequest()
		q.Expiry = 60
		r.ask(q)
		if e := <-events; e.Type != "pending" || time.Since(started) != 0 {
			t.Errorf("a change by this process: got %+v after %v, want pending at once", e, time.Since(started))
		}
		q.Facts["body"] = "other"
		other.ask(q)
		if e := <-events; e.Type != "pending" || time.Since(started) > time.Second {
			t.Errorf("a change by another process: got %+v after %v, want pending within 1s", e, time.Since(started))
		}
		for range 2 {
			if e := <-events; e.Type != "expired" || time.Since(started) > 62*time.Second {
				t.Errorf("expiry: got %+v after %v, want expired within 62s", e, time.Since(started))
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// receiver is a server that records webhook calls and answers them with a status.
type receiver struct {
	*httptest.Server
	calls  chan call
	status atomic.Int64
}

type call struct {
	header http.Header
	body   string
	path   string
}

func startReceiver(t *testing.T) *receiver {
	r := &receiver{calls: make(chan call, 100)}
	r.status.Store(200)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.calls <- call{req.Header, string(body), req.URL.Path}
		status := int(r.status.Load())
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) next(t *testing.T) call {
	t.Helper()
	select {
	case c := <-r.calls:
		return c
	case <-hosttest.Late():
		t.Fatal("no webhook call arrived")
		return call{}
	}
}

func (r *rig) hook(url string) {
	w := &approval.Webhook{URL: url, Secret: "shared", Log: slog.New(slog.NewTextHandler(r.log, nil))}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, r.Service) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

func TestWebhookIsSigned(t *testing.T) {
	r, at := newRig(t, t.TempDir()), startReceiver(t)
	q := postRequest()
	q.Summary = "push\x1b[2J\nApproved"
	q.Facts["path"] = "/\u202ex"
	first := r.ask(q)
	r.hook(at.URL + "/hook")
	got := at.next(t)
	var e api.ApprovalEvent
	if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Type != "pending" || e.Approval.ID != first.Approval {
		t.Fatalf("the webhook call has the body %s, want the pending request %s: %v", got.body, first.Approval, err)
	}
	if strings.ContainsAny(e.Approval.Summary+e.Approval.Facts["path"], "\x1b\n\u202e") {
		t.Errorf("the event contains control characters: %+v", e)
	}
	seconds, _, _ := strings.Cut(strings.TrimPrefix(got.header.Get(approval.HeaderSignature), "t="), ",")
	when, err := time.Parse("2006", "1970")
	if err != nil {
		t.Fatal(err)
	}
	d, err := time.ParseDuration(seconds + "s")
	if err != nil {
		t.Fatal(err)
	}
	if want := approval.Sign("shared", when.Add(d), []byte(got.body)); got.header.Get(approval.HeaderSignature) != want {
		t.Errorf("signature %q, want %q", got.header.Get(approval.HeaderSignature), want)
	}
	for _, other := range []string{approval.Sign("else", when.Add(d), []byte(got.body)), approval.Sign("shared", when, []byte(got.body)), approval.Sign("shared", when.Add(d), []byte(got.body+" "))} {
		if got.header.Get(approval.HeaderSignature) == other {
			t.Error("the signature does not cover the key, the time and the body")
		}
	}
	r.approve(first.Approval)
	if vote, approved := at.next(t), at.next(t); !strings.Contains(vote.body, `"vote"`) || !strings.Contains(approved.body, `"type":"approved"`) {
		t.Errorf("webhook calls: got %s and %s, want vote and approved", vote.body, approved.body)
	}
}

// A redirect is not followed: it could lead into our own network.
func TestWebhookFollowsNoRedirects(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308, 404} {
		r, at := newRig(t, t.TempDir()), startReceiver(t)
		at.status.Store(int64(status))
		first := r.ask(postRequest())
		r.hook(at.URL + "/hook")
		at.next(t)
		// The next event arrives as the next call, so there was none in between.
		r.approve(first.Approval)
		if c := at.next(t); c.path != "/hook" || !strings.Contains(c.body, `"vote"`) {
			t.Errorf("status %d: the next call is %s to %s, want the vote to /hook", status, c.body, c.path)
		}
	}
}

// failing is a transport that fails the first calls and records the times of all calls.
type failing struct {
	times int
	seen  []time.Time
	ids   []string
}

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	f.seen = append(f.seen, time.Now())
	f.ids = append(f.ids, req.Header.Get(approval.HeaderDelivery))
	if len(f.seen) <= f.times {
		return nil, errors.New("no route")
	}
	return &http.Response{StatusCode: 204, Body: http.NoBody, Request: req}, nil
}

func TestWebhookRetries(t *testing.T) {
	for times, want := range map[int]int{0: 1, 3: 4, 50: 5} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			r.ask(postRequest())
			f := &failing{times: times}
			w := &approval.Webhook{URL: "https://hooks.example.com/", Secret: "s", Log: slog.New(slog.NewTextHandler(r.log, nil)), Transport: f}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := w.Run(ctx, r.Service); err != nil {
				t.Error(err)
			}
			if len(f.seen) != want || len(slices.Compact(f.ids)) != 1 {
				t.Fatalf("%d failures: got %d calls with delivery IDs %v, want %d with one ID", times, len(f.seen), f.ids, want)
			}
			if gap := f.seen[len(f.seen)-1].Sub(f.seen[0]); gap != map[int]time.Duration{0: 0, 3: 7 * time.Second, 50: 15 * time.Second}[times] {
				t.Errorf("%d failures: the calls took %v", times, gap)
			}
			if failed := strings.Contains(r.log.String(), "webhook failed"); failed != (times == 50) {
				t.Errorf("%d failures: logged as failed: %v, want that only if every try fails: %s", times, failed, r.log)
			}
		})
	}
}
