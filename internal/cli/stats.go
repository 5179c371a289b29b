package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// stat is the newest sample of one sandbox.
type stat struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	api.Metric
}

func (a listVerbs) statsCommand() *cobra.Command {
	var f listFlags
	var once bool
	cmd := &cobra.Command{
		Use: "stats [SANDBOX...]", Short: "Show the CPU, memory and disk use of sandboxes",
		Long:              "Show the CPU, memory and disk use of sandboxes: updated on a terminal, once otherwise.",
		ValidArgsFunction: a.completeMany,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				if once || a.json || f.jsonl || f.format != "" || !isTerminal(a.Stdout) {
					rows, err := a.sample(cmd.Context(), c, args, false)
					if len(rows) == 0 && err != nil {
						return err
					}
					return errors.Join(err, a.printStats(&f, rows))
				}
				return a.watchStats(cmd.Context(), c, &f, args)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&once, "no-stream", false, "show it once")
	return cmd
}

// sample measures the named sandboxes, or all. It skips a sandbox that has ended since it was
// listed or, if again is set, since an earlier measurement. A sandbox that was never found is an
// error, which does not keep sample from measuring the others.
func (a listVerbs) sample(ctx context.Context, c *connection, refs []string, again bool) ([]stat, error) {
	mayHaveEnded := again && len(refs) > 1
	if len(refs) == 0 {
		mayHaveEnded = true
		rows, err := c.List(ctx, crannog.ListOptions{})
		if err != nil {
			return nil, fail("list sandboxes", err)
		}
		refs = sandboxIDs(rows)
	}
	var stats []stat
	err := a.every(ctx, refs, func(ref string) error {
		sb, err := c.find(ctx, ref)
		if err != nil {
			if mayHaveEnded && errors.Is(err, crannog.ErrNotFound) {
				return nil
			}
			return err
		}
		if err := checkNotEnded(sb.Info()); err != nil {
			if mayHaveEnded {
				return nil
			}
			return err
		}
		metrics, err := sb.Metrics(ctx)
		if err != nil {
			return fail("measure "+ref, err)
		}
		if len(metrics) > 0 {
			stats = append(stats, stat{sb.ID(), sb.Info().Name, metrics[len(metrics)-1]})
		}
		return nil
	})
	return stats, err
}

func (a listVerbs) printStats(f *listFlags, rows []stat) error {
	head := []string{"ID", "NAME", "CPU %", "MEMORY", "DISK", "PIDS"}
	return list(&a.terminal, f, rows, func(s stat) string { return s.ID }, head, func(s stat) []string {
		return []string{
			s.ID, s.Name, fmt.Sprintf("%.1f", s.CPUPercent),
			bytesText(s.MemUsed) + " / " + bytesText(s.MemTotal),
			bytesText(s.DiskUsed) + " / " + bytesText(s.DiskTotal),
			fmt.Sprint(s.PIDs),
		}
	})
}

// watchStats redraws the table until it is interrupted.
func (a listVerbs) watchStats(ctx context.Context, c *connection, f *listFlags, refs []string) error {
	stop, release := notify(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	out := a.Stdout
	defer func() { a.Stdout = out }()
	again := false
	for lines := 0; ; again = true {
		rows, err := a.sample(stop, c, refs, again)
		if err != nil && stop.Err() == nil {
			return err
		}
		if stop.Err() != nil {
			return nil
		}
		var page strings.Builder
		a.Stdout = &page
		if err := a.printStats(f, rows); err != nil {
			return err
		}
		if lines > 0 {
			fmt.Fprintf(out, "\x1b[%dA\x1b[J", lines)
		}
		lines = strings.Count(page.String(), "\n")
		fmt.Fprint(out, page.String())
		select {
		case <-time.After(time.Second):
		case <-stop.Done():
			return nil
		}
	}
}
