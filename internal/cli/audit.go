package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
)

// auditVerbs are the commands about the audit log: crannog audit.
type auditVerbs struct{ *app }

func (a auditVerbs) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Read and verify the audit log",
		Long: "Read and verify the audit log. Every action of people, keys and sandboxes is an\n" +
			"entry. audit verify detects an entry that was changed, removed or moved, and\n" +
			"entries that were cut off.",
	}
	cmd.AddCommand(a.auditTailCommand(), a.auditShowCommand(), a.auditVerifyCommand(), a.auditCheckpointCommand(),
		a.auditExportCommand(), a.auditProveCommand(), a.auditArtifactCommand(), a.auditKeyCommand())
	return cmd
}

// entryFlags are the flags that select entries.
type entryFlags struct {
	sandbox      string
	kinds        []string
	since, until string
}

func (f *entryFlags) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.sandbox, "sandbox", "", "only of this `sandbox`")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only of these `kinds`, such as exec,flow or sandbox for all of that group")
	cmd.Flags().StringVar(&f.since, "since", "", "only from this `time` on: 2h ago, or 2026-05-01, or 2026-05-01T10:00:00Z")
	cmd.Flags().StringVar(&f.until, "until", "", "only before this `time`")
	offer := func(flag string, values func(*cobra.Command) []cobra.Completion) {
		err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return values(cmd), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // there is no such flag
		}
	}
	offer("sandbox", func(cmd *cobra.Command) []cobra.Completion { return a.names(cmd.Context(), nil, []string{"all"}) })
	offer("kind", func(*cobra.Command) []cobra.Completion {
		var out []cobra.Completion
		for _, k := range audit.Kinds {
			out = append(out, string(k))
		}
		return out
	})
}

// options returns the selection of the flags.
func (f *entryFlags) options(ctx context.Context, c *connection, now time.Time) (o crannog.RecordOptions, err error) {
	o.Kinds = f.kinds
	if o.Since, err = pointInTime(f.since, now); err != nil {
		return o, err
	}
	if o.Until, err = pointInTime(f.until, now); err != nil {
		return o, err
	}
	if o.Sandbox = f.sandbox; f.sandbox == lastAlias {
		o.Sandbox, err = c.newest(ctx)
	}
	return o, err
}

// pointInTime parses a time, or a duration before now.
func pointInTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("%q is not a time", text).hint("a duration such as 90m counts back from now; 2026-05-01T10:00:00Z is a time")
}

func (a auditVerbs) auditTailCommand() *cobra.Command {
	var f entryFlags
	var follow, jsonl bool
	var count int
	cmd := &cobra.Command{
		Use: "tail", Short: "Show the newest entries", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  crannog audit tail -f\n  crannog audit tail -n 100 --sandbox mybox --kind exec,flow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || count > maxTail {
				return usagef("-n must be from 1 to %d", maxTail)
			}
			return a.with(cmd.Context(), func(c *connection) error {
				o, err := f.options(cmd.Context(), c, time.Now())
				if err != nil {
					return err
				}
				o.Newest, o.Follow = count, follow
				return a.printRecord(cmd.Context(), c, o, jsonl)
			})
		},
	}
	f.add(a.app, cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new entries until Ctrl-C")
	cmd.Flags().IntVarP(&count, "lines", "n", 20, "`number` of entries to begin with")
	cmd.Flags().BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	return cmd
}

// maxTail is the maximum number of entries in one response of the server.
const maxTail = 1000

func (a auditVerbs) auditShowCommand() *cobra.Command {
	var f entryFlags
	var jsonl bool
	cmd := &cobra.Command{
		Use: "show [SEQ]", Short: "Show one entry, or all entries of a sandbox", Args: cobra.MaximumNArgs(1),
		Example:           "  crannog audit show 1234\n  crannog audit show --sandbox mybox",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args) == 0 {
				return a.with(ctx, func(c *connection) error {
					o, err := f.options(ctx, c, time.Now())
					if err != nil {
						return err
					}
					if jsonl || a.json {
						return a.printRecord(ctx, c, o, jsonl)
					}
					return a.printByTime(ctx, c, o)
				})
			}
			if f.sandbox != "" || len(f.kinds) > 0 || f.since != "" || f.until != "" {
				return usagef("name an entry, or use flags that select entries")
			}
			seq, err := sequence(args[0])
			if err != nil {
				return err
			}
			return a.with(ctx, func(c *connection) error { return a.showEntry(ctx, c, seq, jsonl) })
		},
	}
	f.add(a.app, cmd)
	cmd.Flags().BoolVar(&jsonl, "jsonl", false, "print one JSON object per line")
	return cmd
}

// sequence parses the number of an entry.
func sequence(text string) (int64, error) {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		return 0, usagef("%q is not the number of an entry", text).hint("crannog audit tail shows the number of each entry")
	}
	return seq, nil
}

func (a auditVerbs) printRecord(ctx context.Context, c *connection, o crannog.RecordOptions, jsonl bool) error {
	for e, err := range c.Record(ctx, o) {
		if o.Follow && errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return fail("read the audit log", err)
		}
		if err := a.printEntry(e, jsonl); err != nil {
			return err
		}
	}
	return nil
}

// sortWindow is the number of entries that are sorted together by time, because events from inside
// reach the log a little later than actions from outside.
const sortWindow = 2048

// printByTime prints entries in the order of their times.
func (a auditVerbs) printByTime(ctx context.Context, c *connection, o crannog.RecordOptions) error {
	var window []api.Entry
	flush := func(keep int) error {
		slices.SortStableFunc(window, func(x, y api.Entry) int { return x.Time.Compare(y.Time) })
		for len(window) > keep {
			if err := a.printEntry(window[0], false); err != nil {
				return err
			}
			window = window[1:]
		}
		return nil
	}
	for e, err := range c.Record(ctx, o) {
		if err != nil {
			if err := flush(0); err != nil {
				return err
			}
			return fail("read the audit log", err)
		}
		if window = append(window, e); len(window) >= 2*sortWindow {
			if err := flush(sortWindow); err != nil {
				return err
			}
		}
	}
	return flush(0)
}

func (a auditVerbs) printEntry(e api.Entry, jsonl bool) error {
	switch {
	case jsonl:
		return json.NewEncoder(a.Stdout).Encode(e)
	case a.json:
		return a.object(e)
	case a.quiet:
		_, err := fmt.Fprintln(a.Stdout, e.Seq)
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, entryLine(e))
	return err
}

func (a auditVerbs) showEntry(ctx context.Context, c *connection, seq int64, jsonl bool) error {
	for e, err := range c.Record(ctx, crannog.RecordOptions{From: seq}) {
		if err != nil {
			return fail("read the audit log", err)
		}
		if e.Seq != seq {
			break // the entry was dropped, or belongs to another owner
		}
		if jsonl || a.json || a.quiet {
			return a.printEntry(e, jsonl)
		}
		for _, line := range entryPage(e) {
			fmt.Fprintln(a.Stdout, line)
		}
		return nil
	}
	return fail("show the entry", &crannog.Error{
		Kind: "not_found", Code: "entry_not_found", Message: fmt.Sprintf("there is no entry %d", seq),
		Hint: "crannog audit tail shows the newest",
	})
}
