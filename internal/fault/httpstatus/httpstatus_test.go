package httpstatus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestEveryKindHasAStatus(t *testing.T) {
	want := map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 400, fault.Unauthenticated: 401, fault.Denied: 403,
		fault.NotFound: 404, fault.Exists: 409, fault.Conflict: 409, fault.Exhausted: 429,
		fault.Unsupported: 501, fault.Unavailable: 503, fault.Timeout: 504, fault.Canceled: 499,
	}
	for _, kind := range fault.Kinds {
		err := fmt.Errorf("outer: %w", fault.New(kind, "some_code", "some text"))
		if got := Of(err); got != want[kind] {
			t.Errorf("%s has the status %d, want %d", kind, got, want[kind])
		}
		if _, ok := table[kind]; !ok {
			t.Errorf("%s is not in the table", kind)
		}
	}
	for status, err := range map[int]error{
		413: fault.New(fault.Invalid, BodyTooLarge, "some text"),
		500: errors.Join(errors.New("not classified"), fault.New("unheard_of", "some_code", "some text")),
	} {
		if got := Of(err); got != status {
			t.Errorf("%v has the status %d, want %d", err, got, status)
		}
	}
	if got := Of(errors.New("not classified")); got != 500 {
		t.Errorf("an unclassified error has the status %d, want 500", got)
	}
}
