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

var errEnough = errors.New("enough")

// events collects n events.
func (r *rig) events(caller approval.Caller, after int64, n int) []approval.Event {
	r.t.Helper()
	var events []approval.Event
	ctx, cancel := context.WithTimeout(r.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	err := r.Watch(ctx, caller, approval.Query{}, after, func(e approval.Event) error {
		if events = append(events, e); len(events) == n {
			return errEnough
		}
		return nil
	})
	if n > 0 && !errors.Is(err, errEnough) {
		r.t.Errorf("%d events, then %v", len(events), err)
	}
	return events
}

func types(events []approval.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.Type)
	}
	return list
}

func TestWatchResumes(t *testing.T) {
	r := newRig(t, t.TempDir())
	first := r.ask(push())
	r.approve(first.Approval)
	r.spend(push())
	q := push()
	q.Sandbox = "mine"
	r.ask(q)
	all := r.events(local, 0, 5)
	if want := []string{"pending", "vote", "approved", "spent", "pending"}; !slices.Equal(types(all), want) {
		t.Fatalf("%v", types(all))
	}
	if rest := r.events(local, all[2].Seq, 2); !slices.Equal(types(rest), []string{"spent", "pending"}) {
		t.Errorf("%v", types(rest))
	}
	if own := r.events(approval.Caller{KeyID: "k1"}, all[2].Seq, 1); own[0].Approval.ID != first.Approval {
		t.Errorf("%+v", own)
	}
	// From now on: only open requests are reported first.
	if open := r.events(local, approval.FromNow, 1); open[0].Approval.Sandbox != "mine" || open[0].Seq != all[4].Seq {
		t.Errorf("%+v", open)
	}
}

// A watcher notices changes by this process at once, and changes by other processes and expiries
// soon.
func TestWatchWakes(t *testing.T) {
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
		q := push()
		q.Expiry = 60
		r.ask(q)
		if e := <-events; e.Type != "pending" || time.Since(started) != 0 {
			t.Errorf("%+v after %v", e, time.Since(started))
		}
		q.Facts["body"] = "other"
		other.ask(q)
		if e := <-events; e.Type != "pending" || time.Since(started) > time.Second {
			t.Errorf("%+v after %v", e, time.Since(started))
		}
		for range 2 {
			if e := <-events; e.Type != "expired" || time.Since(started) > 62*time.Second {
				t.Errorf("%+v after %v", e, time.Since(started))
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// receiver answers webhook calls.
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

func receive(t *testing.T) *receiver {
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
		t.Fatal("no call")
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
	r, at := newRig(t, t.TempDir()), receive(t)
	q := push()
	q.Summary = "push\x1b[2J\nApproved"
	q.Facts["path"] = "/\u202ex"
	first := r.ask(q)
	r.hook(at.URL + "/hook")
	got := at.next(t)
	var e api.ApprovalEvent
	if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Type != "pending" || e.Approval.ID != first.Approval {
		t.Fatalf("%s %v", got.body, err)
	}
	if strings.ContainsAny(e.Approval.Summary+e.Approval.Facts["path"], "\x1b\n\u202e") {
		t.Errorf("%+v", e)
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
			t.Error("the signature does not cover everything")
		}
	}
	r.approve(first.Approval)
	if vote, approved := at.next(t), at.next(t); !strings.Contains(vote.body, `"vote"`) || !strings.Contains(approved.body, `"type":"approved"`) {
		t.Errorf("%s %s", vote.body, approved.body)
	}
}

// A redirect is not followed: it could lead into our own network.
func TestWebhookFollowsNoRedirects(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308, 404} {
		r, at := newRig(t, t.TempDir()), receive(t)
		at.status.Store(int64(status))
		first := r.ask(push())
		r.hook(at.URL + "/hook")
		at.next(t)
		// The next event arrives as the next call, so there was none in between.
		r.approve(first.Approval)
		if c := at.next(t); c.path != "/hook" || !strings.Contains(c.body, `"vote"`) {
			t.Errorf("%d: %s %s", status, c.path, c.body)
		}
	}
}

// failing returns errors for the first calls and counts the tries.
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

func TestWebhookTriesAgain(t *testing.T) {
	for times, want := range map[int]int{0: 1, 3: 4, 50: 5} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			r.ask(push())
			f := &failing{times: times}
			w := &approval.Webhook{URL: "https://hooks.example.com/", Secret: "s", Log: slog.New(slog.NewTextHandler(r.log, nil)), Transport: f}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := w.Run(ctx, r.Service); err != nil {
				t.Error(err)
			}
			if len(f.seen) != want || len(slices.Compact(f.ids)) != 1 {
				t.Fatalf("%d failures: %d tries of %v", times, len(f.seen), f.ids)
			}
			if gap := f.seen[len(f.seen)-1].Sub(f.seen[0]); gap != map[int]time.Duration{0: 0, 3: 7 * time.Second, 50: 15 * time.Second}[times] {
				t.Errorf("tried for %v", gap)
			}
			if failed := strings.Contains(r.log.String(), "webhook failed"); failed != (times == 50) {
				t.Errorf("log: %s", r.log)
			}
		})
	}
}
