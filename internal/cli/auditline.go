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
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/host/text"
)

const (
	// lineText bounds what a line says of an entry; audit show has the rest.
	lineText = 240
	pageText = 8192
)

// entryLine is an entry on one line. Everything in it that a sandbox chose is
// made harmless: it could otherwise write on the terminal of who reads it, and
// hide what it did.
func entryLine(e api.Entry) string {
	box := e.Sandbox
	if box == "" {
		box = "-"
	}
	line := fmt.Sprintf("%6d  %s  %-16s  %-20s  %-9s  %s", e.Seq, e.Time.Local().Format("01-02 15:04:05.000"),
		text.Strict(e.Kind, 40), text.Strict(box, 40), text.Strict(e.Actor, 40), text.Strict(gist(e), lineText))
	return strings.TrimRight(line, " ")
}

// gist is what an entry says, for people.
func gist(e api.Entry) string {
	var d struct {
		Argv    []string `json:"argv"`
		Program string   `json:"program"`
		PID     int      `json:"pid"`
		Code    int      `json:"code"`
		Signal  int      `json:"signal"`
		TookNS  int64    `json:"took_ns"`
		Path    string   `json:"path"`
		Op      string   `json:"op"`
		Size    int64    `json:"size"`
		Effect  string   `json:"effect"`
		Rule    string   `json:"rule"`
		Method  string   `json:"method"`
		Host    string   `json:"host"`
		Port    int      `json:"port"`
		Status  int      `json:"status"`
		Kind    string   `json:"kind"`

		N        int     `json:"n"`
		Exit     *int    `json:"exit"`
		Error    string  `json:"error"`
		Hit      string  `json:"hit"`
		Took     float64 `json:"duration_ms"`
		Template string  `json:"template"`
		Engine   string  `json:"engine"`
		Level    string  `json:"level"`
		Net      string  `json:"net"`
		Show     string  `json:"workspace"`
	}
	// What does not have this form is shown by its fields.
	known := json.Unmarshal(e.Data, &d) == nil
	switch audit.Kind(e.Kind) {
	case audit.Exec:
		if known && len(d.Argv) > 0 {
			return fmt.Sprintf("[%d] %s", d.PID, quoted(d.Argv))
		}
	case audit.Exit:
		if !known {
			break
		}
		text := fmt.Sprintf("[%d] code %d", d.PID, d.Code)
		if d.Signal != 0 {
			text = fmt.Sprintf("[%d] signal %d", d.PID, d.Signal)
		}
		return text + " after " + time.Duration(d.TookNS).Round(time.Millisecond/10).String()
	case audit.File:
		if known && d.Path != "" {
			text := d.Op + " " + d.Path
			if d.Size > 0 {
				text += " " + bytesText(d.Size)
			}
			return text
		}
	case audit.Flow:
		if known && d.Effect != "" {
			r := api.FlowRecord{Method: d.Method, Host: d.Host, Port: d.Port, Path: d.Path}
			text := fmt.Sprintf("%s %s %s rule=%s", d.Effect, d.Kind, denial.Subject(r), d.Rule)
			if d.Status > 0 {
				text += " " + strconv.Itoa(d.Status)
			}
			return text
		}
	case audit.CommandStarted:
		if known && len(d.Argv) > 0 {
			return fmt.Sprintf("#%d %s", d.N, quoted(d.Argv))
		}
	case audit.CommandEnded:
		if known && d.Exit != nil && d.Error == "" {
			text := fmt.Sprintf("#%d exit %d after %s", d.N, *d.Exit, time.Duration(d.Took*float64(time.Millisecond)).Round(time.Millisecond/10))
			if d.Hit != "" {
				text += " hit " + d.Hit
			}
			return text
		}
	case audit.SandboxStarted:
		if known && d.Template != "" {
			text := fmt.Sprintf("template=%s engine=%s level=%s net=%s", d.Template, d.Engine, d.Level, d.Net)
			if d.Show != "" {
				text += " shows=" + d.Show
			}
			return text
		}
	default:
	}
	var parts []string
	for _, f := range fields(e.Data) {
		if f.value != "" {
			parts = append(parts, f.name+"="+f.value)
		}
	}
	return strings.Join(parts, " ")
}

// quoted is a command as a shell would take it, nearly: it is for reading.
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

// field is one of an object's fields, in the order in which it has them.
type field struct{ name, value string }

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

// entryPage is all of an entry, one line each.
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
