package cycles_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
)

// P8: at the largest number of sandboxes, all requested at once, each answers for itself and has
// its own content. One more is refused, and they leave nothing.
func TestMaximumOfSandboxesLeavesNothing(t *testing.T) {
	s := start(t)
	count := cycleCount(200) - 1 // besides the sibling
	cycle := func(ctx context.Context, c *crannog.Client) error { return useCrowd(ctx, c, count) }
	s.requireNothingLeft(t, 1, 1, cycle)
}

// useCrowd creates, uses and removes n sandboxes concurrently.
func useCrowd(ctx context.Context, c *crannog.Client, n int) error {
	all := make([]*crannog.Sandbox, n)
	each := func(do func(context.Context, int) error) error {
		group, ctx := errgroup.WithContext(ctx)
		for i := range n {
			group.Go(func() error { return do(ctx, i) })
		}
		return group.Wait()
	}
	if err := each(func(ctx context.Context, i int) (err error) {
		all[i], err = c.Create(ctx, crannog.Policy(policy))
		return err
	}); err != nil {
		return err
	}
	ids := make(map[string]bool, n)
	for _, sb := range all {
		ids[sb.ID()] = true
	}
	list, err := c.List(ctx, crannog.ListOptions{})
	if err != nil {
		return err
	}
	for _, info := range list {
		delete(ids, info.ID)
	}
	if len(ids) > 0 || len(list) != n+1 {
		return fmt.Errorf("got %d sandboxes in the list, want %d; missing are %v", len(list), n+1, ids)
	}
	if n+1 == 200 { // the default of max_live
		if _, err := c.Create(ctx); crannog.Code(err) != "too_many_sandboxes" {
			return fmt.Errorf("create a sandbox beyond the limit: got %w, want too_many_sandboxes", err)
		}
	}
	write := func(ctx context.Context, i int) error {
		if err := run(ctx, all[i]); err != nil {
			return err
		}
		return all[i].CommandContext(ctx, "sh", "-c", fmt.Sprintf("echo %d > ~/number; echo %d > /tmp/number", i, i)).Run()
	}
	read := func(ctx context.Context, i int) error {
		out, err := all[i].CommandContext(ctx, "sh", "-c", "cat ~/number /tmp/number; hostname").CombinedOutput()
		lines := strings.Fields(string(out))
		if err != nil || len(lines) != 3 || lines[0] != fmt.Sprint(i) || lines[1] != lines[0] {
			return fmt.Errorf("sandbox %d has %q: %w", i, out, err)
		}
		return nil
	}
	remove := func(ctx context.Context, i int) error { return all[i].Kill(ctx) }
	for _, do := range []func(context.Context, int) error{write, read, remove} {
		if err := each(do); err != nil {
			return err
		}
	}
	return nil
}
