package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// Policy returns what governs a sandbox.
func (s *Service) Policy(ctx context.Context, who sandbox.Principal, ref string) (*policy.Policy, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	return s.access.Compile(r.Access)
}

// Flows calls yield for each record of a sandbox's link.
func (s *Service) Flows(ctx context.Context, who sandbox.Principal, ref string, f flows.Filter, follow bool, yield func(egress.Record) error) error {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return err
	}
	if s.intake.Flows() == nil || !r.Access.Linked() {
		return nil
	}
	var gone <-chan struct{}
	if follow && r.State == sandbox.Running {
		// One that another process made is watched from here on: without that
		// its end would not be seen.
		s.Live(r.ID)
		gone = s.Gone(r.ID)
	}
	if gone == nil {
		return s.intake.Flows().Read(ctx, r.ID, f, false, yield)
	}
	// Followers of a sandbox that ends get what it wrote last, and their end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	last := f.After
	err = s.intake.Flows().Read(ctx, r.ID, f, true, func(rec egress.Record) error {
		last = rec.Seq
		return yield(rec)
	})
	cancel()
	<-ended
	select {
	case <-gone:
		f.After = last
		return s.intake.Flows().Read(context.WithoutCancel(ctx), r.ID, f, false, yield)
	default:
		return err
	}
}

// maxAsked bounds what a guest may say about names.
const maxAsked = 64 << 10

// FlowSize is how many bytes the records of a sandbox's link come to by now.
func (s *Service) FlowSize(id string) int64 {
	if s.intake.Flows() == nil {
		return 0
	}
	return s.intake.Flows().Size(id)
}

// Asked are the names that programs asked for in a sandbox without a network,
// after a time.
func (s *Service) Asked(ctx context.Context, who sandbox.Principal, ref string, since time.Time) ([]string, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	if r.State != sandbox.Running || r.Access.Linked() {
		return nil, nil
	}
	// It may have had a link before, and secrets.
	hide, err := s.access.Unseen(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	res, err := s.engines.askGuest(ctx, r, http.MethodGet, guest.PathAsked, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fault.Newf(fault.Unavailable, "guest_failed", "the guest answered %s", res.Status)
	}
	var asked guest.Asked
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAsked)).Decode(&asked); err != nil {
		return nil, fmt.Errorf("names asked for in %s: %w", r.ID, err)
	}
	names := askedAfter(asked, time.Since(since))
	for i, name := range names {
		names[i] = hide(name)
	}
	// The inspection itself looks up a name that does not exist; that is not a
	// program's lookup.
	return slices.DeleteFunc(names, func(name string) bool { return name == policy.NobodysName }), nil
}

// askedAfter are the names that were asked for since so long ago. The guest
// says how long ago that was because its clock is not ours.
func askedAfter(asked guest.Asked, ago time.Duration) []string {
	if len(asked.AgoUS) != len(asked.Names) {
		return asked.Names // an earlier version's, which does not say
	}
	var names []string
	for i, name := range asked.Names {
		if asked.AgoUS[i] <= ago.Microseconds() {
			names = append(names, name)
		}
	}
	return names
}

// Unseen is what must not be seen in what the audit log is told of a sandbox.
// After an error nothing that its programs choose may be told.
func (s *Service) Unseen(ctx context.Context, id string) (func(string) string, error) {
	return s.access.Unseen(ctx, id)
}

// Survey lets the engine write down what became of a sandbox's files, for
// those who know that something has ended in it which is no process.
func (s *Service) Survey(ctx context.Context, id string) error {
	if _, ok := s.Live(id); !ok {
		return sandbox.Unknown(id)
	}
	s.intake.Survey(ctx, id)
	return nil
}
