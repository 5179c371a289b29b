package live

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/sandbox"
)

// Row is one sandbox as the fleet shows it.
type Row struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Template  string            `json:"template"`
	State     string            `json:"state"`
	Reason    string            `json:"reason,omitempty"` // why it ended
	Level     string            `json:"level"`
	Engine    string            `json:"engine"`
	Boundary  string            `json:"boundary"`
	Owner     string            `json:"owner"`
	Labels    map[string]string `json:"labels"`
	CreatedAt time.Time         `json:"created_at"`
	EndsAt    *time.Time        `json:"ends_at"`
	// LastCommand is the last command of a caller, or null.
	LastCommand *Command `json:"last_command"`
	Pending     int      `json:"pending"` // pending approval requests
	// Denied is the number of denials in the part of the audit log that was read.
	Denied int `json:"denied"`
	// OOM means that the sandbox or a command in it ran out of memory.
	OOM bool `json:"oom"`
	// Attention is the sort key: sandboxes that a person should look at first have greater values.
	Attention    int    `json:"attention"`
	AttentionWhy string `json:"attention_why"`
}

// Command is a command that a caller ran.
type Command struct {
	Text     string    `json:"text"`
	At       time.Time `json:"at"`
	ExitCode *int      `json:"exit_code"` // null while it runs, or if unknown
}

// Levels of attention. Within a level, a greater count comes first.
const (
	attentionPending   = 5000
	attentionDenied    = 4000
	attentionOOM       = 3000
	attentionNoNetwork = 2000
	attentionFailed    = 1000
	attentionIdle      = 100 // the sandbox runs, but no command runs in it
	maxAttentionCount  = 999
)

// idleAfter is how long after its last command a sandbox counts as idle.
const idleAfter = 10 * time.Minute

// rowOf returns the row of a sandbox.
func rowOf(sb sandbox.Sandbox, f *summary, pending int, now time.Time) Row {
	r := Row{
		ID: sb.ID, Name: sb.Name, Template: sb.Template, State: string(sb.State), Reason: sb.Reason, Level: sb.PolicyLevel,
		Engine: sb.Engine, Boundary: string(sb.Boundary), Owner: sb.Owner, Labels: sb.Metadata,
		CreatedAt: sb.StartedAt, Pending: pending, OOM: sb.Reason == reasonOOM,
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	if !sb.EndAt.IsZero() {
		r.EndsAt = &sb.EndAt
	}
	if f != nil {
		r.LastCommand, r.Denied, r.OOM = f.last, f.denied, r.OOM || f.oom
	}
	r.Attention, r.AttentionWhy = attention(r, sb, f, now)
	return r
}

func attention(r Row, sb sandbox.Sandbox, f *summary, now time.Time) (int, string) {
	lately := f.deniedSince(now)
	live := sb.State != sandbox.Stopped
	switch {
	case r.Pending == 1:
		return attentionPending + 1, "an approval request is pending"
	case r.Pending > 1:
		return attentionPending + min(r.Pending, maxAttentionCount), "approval requests are pending"
	case live && lately > 0:
		return attentionDenied + min(lately, maxAttentionCount), "a request was denied"
	case r.OOM:
		return attentionOOM, "it ran out of memory"
	case live && sb.Unlinked:
		return attentionNoNetwork, "it has lost its network"
	case live && r.LastCommand != nil && r.LastCommand.ExitCode != nil && *r.LastCommand.ExitCode != 0:
		return attentionFailed, "its last command failed"
	case sb.State == sandbox.Running && now.Sub(sb.StartedAt) > idleAfter && (r.LastCommand == nil || now.Sub(r.LastCommand.At) > idleAfter):
		return attentionIdle, "no command ran recently"
	}
	return 0, ""
}

// marshal returns the JSON of a row.
func (r Row) marshal() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		// Encoding can fail only for a time beyond the year 9999.
		r.CreatedAt, r.EndsAt, r.LastCommand = time.Time{}, nil, nil
		b, _ = json.Marshal(r)
	}
	return b
}

// maxCommand bounds the shown text of a command, which programs choose.
const maxCommand = 200

// commandText returns a command on one line.
func commandText(argv []string) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(arg); b.Len() > maxCommand {
			break
		}
	}
	return text.Line(b.String(), maxCommand)
}
