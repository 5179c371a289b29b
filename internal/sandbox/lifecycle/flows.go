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

// Policy returns the policy of a sandbox.
func (s *Service) Policy(ctx context.Context, caller sandbox.Principal, ref string) (*policy.Policy, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return nil, err
	}
	return s.access.Compile(r.Access)
}

// Flows calls yield for each event of a sandbox's network attachment.
func (s *Service) Flows(ctx context.Context, caller sandbox.Principal, ref string, f flows.Filter, follow bool, yield func(egress.Record) error) error {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return err
	}
	if s.intake.Flows() == nil || !r.Access.Linked() {
		return nil
	}
	var gone <-chan struct{}
	if follow && r.State == sandbox.Running {
		// A sandbox that another process created is watched from here on; otherwise its end would
		// go unnoticed.
		s.Live(r.ID)
		gone = s.Gone(r.ID)
	}
	if gone == nil {
		return s.intake.Flows().Read(ctx, r.ID, f, false, yield)
	}
	// Followers of a sandbox that ends get its last events first and then the end of the stream.
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

// maxLookupBytes limits the length of a guest's answer about names.
const maxLookupBytes = 64 << 10

// FlowSize returns the present size of a sandbox's flow files in bytes.
func (s *Service) FlowSize(id string) int64 {
	if s.intake.Flows() == nil {
		return 0
	}
	return s.intake.Flows().Size(id)
}

// Asked returns the names that programs in a sandbox without a network looked up after the given
// time.
func (s *Service) Asked(ctx context.Context, caller sandbox.Principal, ref string, since time.Time) ([]string, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return nil, err
	}
	if r.State != sandbox.Running || r.Access.Linked() {
		return nil, nil
	}
	// The sandbox may have had a network and secrets before.
	redact, err := s.access.EntryRedactor(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	res, err := s.engines.askGuest(ctx, r, http.MethodGet, guest.PathLookups, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fault.Newf(fault.Unavailable, "guest_failed", "the guest answered %s", res.Status)
	}
	var lookups guest.Lookups
	if err := json.NewDecoder(io.LimitReader(res.Body, maxLookupBytes)).Decode(&lookups); err != nil {
		return nil, fmt.Errorf("names looked up in %s: %w", r.ID, err)
	}
	names := namesAfter(lookups, time.Since(since))
	for i, name := range names {
		names[i] = redact(name)
	}
	// The guest's inspection looks up a name that does not exist. That is not a lookup of a
	// program.
	return slices.DeleteFunc(names, func(name string) bool { return name == policy.UnusedName }), nil
}

// namesAfter returns the names that were looked up within the given time. The guest reports the age
// of each lookup because its clock differs from the host's.
func namesAfter(lookups guest.Lookups, ago time.Duration) []string {
	if len(lookups.AgoUS) != len(lookups.Names) {
		return lookups.Names // a guest of an earlier version does not report ages
	}
	var names []string
	for i, name := range lookups.Names {
		if lookups.AgoUS[i] <= ago.Microseconds() {
			names = append(names, name)
		}
	}
	return names
}

// EntryRedactor returns the redactor for a sandbox's audit entries. After an error, no text that
// its programs choose may be written.
func (s *Service) EntryRedactor(ctx context.Context, id string) (func(string) string, error) {
	return s.access.EntryRedactor(ctx, id)
}

// Survey makes the engine write events about a sandbox's files. Callers use it at the end of work
// that is not the end of a process.
func (s *Service) Survey(ctx context.Context, id string) error {
	if _, ok := s.Live(id); !ok {
		return sandbox.Unknown(id)
	}
	s.intake.Survey(ctx, id)
	return nil
}
