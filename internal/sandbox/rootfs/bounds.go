package rootfs

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// codeBounds is the code of a failed boot whose engine claims a limit that does not hold.
const codeBounds = "limit_not_effective"

// hiddenLimits returns the enforced limits that programs inside cannot see, so that they can only
// be checked from outside.
func hiddenLimits(r sandbox.Row, shows []engine.Limit) []engine.Limit {
	return slices.DeleteFunc(slices.Clone(r.Enforced), func(l engine.Limit) bool { return slices.Contains(shows, l) })
}

// describeBounds describes the checks of CheckBounds.
func describeBounds(r sandbox.Row, shows []engine.Limit) (list []string) {
	limits := hiddenLimits(r, shows)
	for _, f := range r.Limits.Fields() {
		if slices.Contains(limits, f.Limit) {
			list = append(list, "checked from outside: at most "+f.Text(*f.Value)+" of "+f.Name)
		}
	}
	return list
}

// CheckBounds compares those limits of a running instance that its programs cannot see with the
// values that the engine reads back. It returns an error if a limit is higher or cannot be read
// back, because the engine then does not enforce it as promised.
func CheckBounds(ctx context.Context, e engine.Engine, r sandbox.Row) error {
	info := e.Info()
	limits := hiddenLimits(r, info.Shows)
	if len(limits) == 0 {
		return nil
	}
	var inForce sandbox.Limits
	if meter, ok := e.(engine.Meter); ok {
		bounds, err := meter.Bounds(ctx, r.ID)
		if err != nil {
			return err
		}
		inForce.Limits = bounds
	}
	inForceFields := inForce.Fields()
	for i, f := range r.Limits.Fields() {
		if !slices.Contains(limits, f.Limit) {
			continue
		}
		limit := *f.Value
		if f.Limit == engine.LimitCPU {
			// If no cgroup limits the processor time, the number of processors does.
			limit = (limit + 999) / 1000 * 1000
		}
		switch got := *inForceFields[i].Value; {
		case got <= 0:
			return limitNotEffective(info.Name, f, "cannot be read back")
		case got > limit:
			return limitNotEffective(info.Name, f, "is "+f.Text(got))
		}
	}
	return nil
}

func limitNotEffective(name string, f sandbox.LimitField, found string) error {
	return fault.Newf(fault.Unsupported, codeBounds, "the engine %s reports a limit of %s of %s, but the limit in force %s", name, f.Text(*f.Value), f.Name, found).
		WithHint("nothing was started; this is a fault of crannog or of its engine, please report it with the output of crannog doctor")
}
