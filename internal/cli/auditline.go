package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/packages"
)

// Bounds of the text of an entry, in bytes: on the single line of entryLine, and of each field of
// entryPage.
const (
	lineText = 240
	pageText = 8192
)

// entryLine returns an entry on one line. Control characters are removed, because a sandbox chose
// part of the text and could otherwise use the reader's terminal to hide its actions.
func entryLine(e api.Entry) string {
	sandbox := e.Sandbox
	if sandbox == "" {
		sandbox = "-"
	}
	line := fmt.Sprintf("%6d  %s  %-16s  %-20s  %-9s  %s", e.Seq, e.Time.Local().Format("01-02 15:04:05.000"),
		text.Strict(e.Kind, 40), text.Strict(sandbox, 40), text.Strict(e.Actor, 40), text.Strict(summary(e), lineText))
	return strings.TrimRight(line, " ")
}

// summary returns a description of an entry for people. An entry of a kind without a format of its
// own is shown by its fields.
func summary(e api.Entry) string {
	switch d := entrydata.Of(audit.Kind(e.Kind), e.Data).(type) {
	case ingest.Exec:
		if len(d.Argv) > 0 {
			return fmt.Sprintf("[%d] %s", d.PID, quoted(d.Argv))
		}
	case ingest.Exit:
		how := fmt.Sprintf("code %d", d.Code)
		if d.Signal != 0 {
			how = fmt.Sprintf("signal %d", d.Signal)
		}
		return fmt.Sprintf("[%d] %s after %s", d.PID, how, rounded(time.Duration(d.TookNS)))
	case ingest.File:
		if d.Path != "" {
			line := string(d.Op) + " " + d.Path
			if d.Size > 0 {
				line += " " + bytesText(d.Size)
			}
			return line
		}
	case egress.Record:
		if d.Effect != "" {
			line := fmt.Sprintf("%s %s %s rule=%s", d.Effect, d.Kind, denial.Subject(denial.Flow(d)), d.Rule)
			if d.Status > 0 {
				line += " " + strconv.Itoa(d.Status)
			}
			if p := d.Package; p != nil {
				line += " package=" + packages.Artifact{Ecosystem: p.Ecosystem, Name: p.Name, Version: p.Version}.String() + " " + p.Verdict
				if p.Cached {
					line += " cached"
				}
			}
			return line
		}
	case observe.Started:
		if len(d.Argv) > 0 {
			return fmt.Sprintf("#%d %s", d.N, quoted(d.Argv))
		}
	case observe.Ended:
		if d.Exit != nil && d.Error == "" {
			line := fmt.Sprintf("#%d exit %d after %s", d.N, *d.Exit, rounded(time.Duration(d.DurationMS*float64(time.Millisecond))))
			if d.Hit != "" {
				line += " hit " + d.Hit
			}
			return line
		}
	case payload.Started:
		if d.Template != "" {
			line := fmt.Sprintf("template=%s engine=%s level=%s net=%s", d.Template, d.Engine, d.Level, d.Net)
			if d.Workspace != "" {
				line += " shows=" + d.Workspace
			}
			return line
		}
	}
	var parts []string
	for _, f := range fields(e.Data) {
		if f.value != "" {
			parts = append(parts, f.name+"="+f.value)
		}
	}
	return strings.Join(parts, " ")
}

// rounded rounds a duration for display, to a tenth of a millisecond.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond / 10) }

// quoted returns a command for display, roughly in the syntax of a shell.
func quoted(argv []string) string {
	parts := make([]string, len(argv))
	for i, s := range argv {
		if s == "" || strings.ContainsAny(s, " \t\n'\"\\$`|&;<>()*?#~") {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		parts[i] = s
	}
	return strings.Join(parts, " ")
}

// field is one field of an object. Fields keep the object's order.
type field struct{ name, value string }

// fields returns the fields of a JSON object. Other JSON becomes a single field named data.
func fields(data json.RawMessage) []field {
	in := json.NewDecoder(bytes.NewReader(data))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		if len(data) == 0 {
			return nil
		}
		return []field{{"data", string(data)}}
	}
	var out []field
	for in.More() {
		name, err := in.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			break
		}
		text := string(value)
		var plain string
		if json.Unmarshal(value, &plain) == nil {
			text = plain
		}
		out = append(out, field{fmt.Sprint(name), text})
	}
	return out
}

// entryPage returns an entry completely, one field per line.
func entryPage(e api.Entry) []string {
	var out []string
	row := func(name, value string) {
		if value != "" {
			out = append(out, fmt.Sprintf("%-12s %s", text.Strict(name, 40), text.Strict(value, pageText)))
		}
	}
	row("entry", strconv.FormatInt(e.Seq, 10))
	row("time", e.Time.Format(time.RFC3339Nano))
	row("kind", e.Kind)
	row("sandbox", e.Sandbox)
	row("actor", e.Actor)
	if e.Source != "" {
		row("source", fmt.Sprintf("%s at %d", e.Source, e.At))
	}
	row("prev", e.Prev)
	for _, f := range fields(e.Data) {
		row("  "+f.name, f.value)
	}
	return out
}
