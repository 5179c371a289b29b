package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

var _ sandbox.Store = (*Store)(nil)

const columns = `id, owner, name, state, template_id, template, started_at, end_at, stopped_at, reason,
	ephemeral, pid, process_start, access_token, traffic_token, control_token, metadata, env, limits,
	mask_request_host, workspace, engine, boundary, enforced, access, policy_level, policy_digest, checked,
	paused_at, on_end, origin, at_snapshot, parent, actor_pid, actor_start, create_timeout, run, base, base_copy, saved, image, pending`

// countLive counts the live sandboxes, for their limit.
const countLive = `(SELECT count(*) FROM sandboxes WHERE state IN ('creating', 'running', 'stopping', 'pausing', 'resuming'))`

// Insert adds a sandbox. Limit and name are checked in the inserting statement, so that two
// processes cannot both take the last place.
func (s *Store) Insert(ctx context.Context, r sandbox.Row, max int) error {
	values, err := encode(r)
	if err != nil {
		return fmt.Errorf("insert sandbox %s: %w", r.ID, err)
	}
	n, err := s.insertRow(ctx, r, `INSERT INTO sandboxes (`+columns+`) SELECT `+placeholders(len(values))+`
		WHERE `+countLive+` < ?`, append(values, max))
	if isUnique(err) {
		return nameTaken(r.Name)
	}
	if err != nil {
		return fmt.Errorf("insert sandbox %s: %w", r.ID, classify(err))
	}
	if n == 0 {
		return tooMany(max)
	}
	return nil
}

func tooMany(max int) error {
	return fault.Newf(fault.Exhausted, sandbox.CodeTooMany, "%d sandboxes are live, which is the limit", max).
		WithHint("remove some, or raise the server's limit")
}

func nameTaken(name string) error {
	return fault.Newf(fault.Exists, "sandbox_name_taken", "a sandbox named %q is live already", name).
		WithHint("remove it or choose another name")
}

// Get finds a sandbox by its ID.
func (s *Store) Get(ctx context.Context, id string) (sandbox.Row, error) {
	row := s.db.QueryRowContext(ctx, `SELECT `+columns+` FROM sandboxes WHERE id = ?`, id)
	r, err := decode(row)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Row{}, sandbox.Unknown(id)
	}
	if err != nil {
		return sandbox.Row{}, fmt.Errorf("get sandbox %s: %w", id, classify(err))
	}
	return r, nil
}

// SetEnd changes the end of a running sandbox.
func (s *Store) SetEnd(ctx context.Context, id string, end time.Time, onlyLater bool) (bool, error) {
	query := `UPDATE sandboxes SET end_at = ? WHERE id = ? AND state = 'running'`
	args := []any{nanos(end), id}
	if onlyLater {
		query += ` AND end_at <> 0 AND end_at < ?`
		args = append(args, nanos(end))
	}
	return s.execChanged(ctx, "set end of sandbox "+id, query, args...)
}

// SetAccess changes what a sandbox may access.
func (s *Store) SetAccess(ctx context.Context, id string, a sandbox.Access, level, digest string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("set access of sandbox %s: %w", id, err)
	}
	changed, err := s.execChanged(ctx, "set access of sandbox "+id,
		`UPDATE sandboxes SET access = ?, policy_level = ?, policy_digest = ? WHERE id = ?`, string(text), level, digest, id)
	if err == nil && !changed {
		return sandbox.Unknown(id)
	}
	return err
}

// Delete removes a sandbox with its log.
func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := s.execChanged(ctx, "delete sandbox "+id, `DELETE FROM sandboxes WHERE id = ?`, id)
	return err
}

// execChanged executes a write and reports whether it changed a row.
func (s *Store) execChanged(ctx context.Context, what, query string, args ...any) (bool, error) {
	res, err := s.exec(ctx, query, args...)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, classify(err))
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	return n > 0, nil
}

func encode(r sandbox.Row) ([]any, error) {
	var texts [9]string
	for i, v := range []any{r.Metadata, r.Env, r.Limits, r.Enforced, r.Access, r.Checked, r.OnEnd, r.Base, r.Saved} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		texts[i] = string(b)
	}
	return []any{
		r.ID, r.Owner, r.Name, string(r.State), r.TemplateID, r.Template,
		nanos(r.StartedAt), nanos(r.EndAt), nanos(r.StoppedAt), r.Reason,
		r.Ephemeral, r.Process.PID, r.Process.Start, r.AccessToken, r.TrafficToken, r.ControlToken,
		texts[0], texts[1], texts[2], r.MaskRequestHost, r.Workspace, r.Engine, string(r.Boundary), texts[3],
		texts[4], r.PolicyLevel, r.PolicyDigest, texts[5],
		nanos(r.PausedAt), texts[6], r.Origin, r.At, r.Parent, r.Actor.PID, r.Actor.Start, int64(r.CreateTimeout), r.Run,
		texts[7], r.Base.Copy, texts[8], r.Saved.Image, r.Pending,
	}, nil
}

func decode(row interface{ Scan(...any) error }) (sandbox.Row, error) {
	var r sandbox.Row
	var started, end, stopped, paused int64
	var texts [9]string
	var baseCopy, image string // columns that only queries use; Base and Saved have the same values
	err := row.Scan(&r.ID, &r.Owner, &r.Name, &r.State, &r.TemplateID, &r.Template, &started, &end, &stopped, &r.Reason,
		&r.Ephemeral, &r.Process.PID, &r.Process.Start, &r.AccessToken, &r.TrafficToken, &r.ControlToken,
		&texts[0], &texts[1], &texts[2], &r.MaskRequestHost, &r.Workspace, &r.Engine, &r.Boundary, &texts[3],
		&texts[4], &r.PolicyLevel, &r.PolicyDigest, &texts[5],
		&paused, &texts[6], &r.Origin, &r.At, &r.Parent, &r.Actor.PID, &r.Actor.Start, &r.CreateTimeout, &r.Run,
		&texts[7], &baseCopy, &texts[8], &image, &r.Pending)
	if err != nil {
		return sandbox.Row{}, err
	}
	for i, v := range []any{&r.Metadata, &r.Env, &r.Limits, &r.Enforced, &r.Access, &r.Checked, &r.OnEnd, &r.Base, &r.Saved} {
		if err := json.Unmarshal([]byte(texts[i]), v); err != nil {
			return sandbox.Row{}, fmt.Errorf("row %s: %w", r.ID, err)
		}
	}
	r.StartedAt, r.EndAt, r.StoppedAt, r.PausedAt = timeOf(started), timeOf(end), timeOf(stopped), timeOf(paused)
	return r, nil
}

// nanos converts a time to nanoseconds. The zero time is 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func placeholders(n int) string {
	return strings.TrimSuffix(strings.Repeat("?,", n), ",")
}
