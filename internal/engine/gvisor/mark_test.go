package gvisor

import (
	"testing"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/limits"
)

// A process cannot change its mark, and its children inherit it.
func TestF6MarkIsSetOnce(t *testing.T) {
	none := limits.Limit{Cur: limits.Infinity, Max: limits.Infinity}
	mark := limits.Limit{Cur: 5, Max: 5}
	set := limits.NewLimitSet()
	set.SetUnchecked(limits.Locks, none)
	if _, err := setMarkOnce(set, none); err != nil {
		t.Errorf("setting the present value: %v", err)
	}
	if _, err := setMarkOnce(set, limits.Limit{Cur: 6, Max: 5}); !linuxerr.Equals(linuxerr.EINVAL, err) {
		t.Errorf("a value above its maximum: got %v, want EINVAL", err)
	}
	if old, err := setMarkOnce(set, mark); err != nil || old != none {
		t.Errorf("setting the first mark: previous %v, %v", old, err)
	}
	child := set.GetCopy()
	for _, to := range []limits.Limit{none, {Cur: 4, Max: 5}, {Cur: 4, Max: 4}, {Cur: 0, Max: 5}} {
		if _, err := setMarkOnce(child, to); !linuxerr.Equals(linuxerr.EPERM, err) {
			t.Errorf("changing the mark to %v: got %v, want EPERM", to, err)
		}
	}
	if got := child.Get(limits.Locks); got != mark {
		t.Errorf("the child has the mark %v, want %v", got, mark)
	}
}
