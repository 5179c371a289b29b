package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/host/text"
)

// listFlags are the flags about the output format of a list.
type listFlags struct {
	jsonl  bool
	format string
}

func (l *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.jsonl, "jsonl", false, "print one JSON object per line")
	cmd.Flags().StringVar(&l.format, "format", "", "print each with a Go `template`, such as '{{.id}} {{.state}}'")
}

// object prints one value as JSON.
func (t *terminal) object(v any) error {
	enc := json.NewEncoder(t.Stdout)
	enc.SetEscapeHTML(false)
	if isTerminal(t.Stdout) {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// indented prints indented JSON, also to a pipe. With --json it prints one line, like all commands.
func (t *terminal) indented(v any) error {
	if t.json {
		return t.object(v)
	}
	enc := json.NewEncoder(t.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// list prints rows in the requested format. The table is for people; the other formats use the
// API's field names.
func list[T any](t *terminal, f *listFlags, rows []T, id func(T) string, head []string, columns func(T) []string) error {
	switch {
	case f.format != "":
		return formatted(t.Stdout, f.format, rows)
	case f.jsonl:
		enc := json.NewEncoder(t.Stdout)
		for _, row := range rows {
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	case t.json:
		if rows == nil {
			rows = []T{}
		}
		return t.object(rows)
	case t.quiet:
		for _, row := range rows {
			fmt.Fprintln(t.Stdout, printable(id(row)))
		}
		return nil
	}
	cells := make([][]string, 0, len(rows))
	for _, row := range rows {
		cells = append(cells, columns(row))
	}
	return table(t.Stdout, head, cells)
}

// table prints rows below a head, with aligned columns.
func table(w io.Writer, head []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// oneLine returns a text on one line, without control characters. Otherwise a name that a sandbox
// chose could leave its cell.
func oneLine(cell string) string { return cmp.Or(text.Line(cell, longestLine), "-") }

// formatted prints rows with a Go template. It applies the template to the JSON form, so that the
// field names are those of the API.
func formatted[T any](w io.Writer, text string, rows []T) error {
	t, err := template.New("format").Option("missingkey=zero").Parse(text)
	if err != nil {
		return usagef("--format: %s", err.Error())
	}
	for _, row := range rows {
		b, err := json.Marshal(row)
		if err != nil {
			return err
		}
		var fields map[string]any
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := dec.Decode(&fields); err != nil {
			return err
		}
		var line strings.Builder
		if err := t.Execute(&line, fields); err != nil {
			return usagef("--format: %s", err.Error())
		}
		fmt.Fprintln(w, printable(line.String()))
	}
	return nil
}

// ago returns a time relative to now, for people.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// span returns a duration in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// bytesText returns a size with one digit after the point.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%dB", n)
	}
	value, names := float64(n), "KMGTPE"
	i := -1
	for value >= unit && i < len(names)-1 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f%ciB", value, names[i])
}
