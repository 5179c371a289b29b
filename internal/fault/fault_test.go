package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestCodeOf(t *testing.T) {
	full := fault.New(fault.Exhausted, "disk_full", "no room")
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {errors.New("plain"), "internal"}, {full, "disk_full"}, {fmt.Errorf("save: %w", full), "disk_full"},
		{fault.New(fault.NotFound, "", "no code"), "not_found"},
	} {
		if got := fault.CodeOf(test.err); got != test.want {
			t.Errorf("%v: code %q, want %q", test.err, got, test.want)
		}
	}
}
