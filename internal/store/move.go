package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// update collects the assignments and conditions of a statement, with their values.
type update struct {
	set, where         string
	setArgs, whereArgs []any
}

// assign adds an assignment, such as "state = ?", with its values.
func (u *update) assign(term string, values ...any) {
	if u.set != "" {
		u.set += ", "
	}
	u.set, u.setArgs = u.set+term, append(u.setArgs, values...)
}

// require adds a condition, such as "id = ?", with its values.
func (u *update) require(term string, values ...any) {
	if u.where != "" {
		u.where += " AND "
	}
	u.where, u.whereArgs = u.where+term, append(u.whereArgs, values...)
}

// Move changes the state of a sandbox if it is in an expected state. All conditions are in one
// statement, so that of two processes only one succeeds.
func (s *Store) Move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	var u update
	u.assign(`state = ?`, string(m.To))
	u.assign(`reason = CASE reason WHEN '' THEN ? ELSE reason END`, m.Reason)
	u.assign(`stopped_at = ?`, nanos(m.At))
	if m.By != (sandbox.Process{}) {
		u.assign(`actor_pid = ?, actor_start = ?`, m.By.PID, m.By.Start)
	}
	if m.Next {
		u.assign(`run = run + 1`)
	}
	if err := u.change(m.Change); err != nil {
		return false, fmt.Errorf("move sandbox %s: %w", id, err)
	}
	u.expect(id, m)
	withoutLimits := u
	if m.MaxLive > 0 {
		u.require(countLive+` < ?`, m.MaxLive)
	}
	if m.MaxPaused > 0 {
		u.require(countPaused+` < ?`, m.MaxPaused)
	}
	moved, err := s.execChanged(ctx, "move sandbox "+id, `UPDATE sandboxes SET `+u.set+` WHERE `+u.where, append(u.setArgs, u.whereArgs...)...)
	if err != nil || moved || m.MaxLive == 0 && m.MaxPaused == 0 {
		return moved, err
	}
	// Nothing has changed. If the row matches without the limits, a limit is the reason.
	var matches bool
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) > 0 FROM sandboxes WHERE `+withoutLimits.where, withoutLimits.whereArgs...).Scan(&matches); err != nil || !matches {
		return false, classify(err)
	}
	if m.MaxLive > 0 {
		return false, tooMany(m.MaxLive)
	}
	return false, fault.Newf(fault.Exhausted, sandbox.CodeTooManyPaused, "%d sandboxes are paused, which is the limit", m.MaxPaused).
		WithHint("remove some, or raise the server's limit max_paused")
}

// countPaused counts the paused sandboxes, for their limit.
const countPaused = `(SELECT count(*) FROM sandboxes WHERE state IN ('pausing', 'paused'))`

// expect adds the conditions of a move, except the limits.
func (u *update) expect(id string, m sandbox.Move) {
	from := make([]any, len(m.From))
	for i, state := range m.From {
		from[i] = string(state)
	}
	u.require(`id = ?`, id)
	u.require(`state IN (`+placeholders(len(from))+`)`, from...)
	if !m.EndedBy.IsZero() {
		u.require(`end_at <> 0 AND end_at <= ?`, nanos(m.EndedBy))
	}
	if m.WasBy != (sandbox.Process{}) {
		u.require(`actor_pid = ? AND actor_start = ?`, m.WasBy.PID, m.WasBy.Start)
	}
	if m.Run > 0 {
		u.require(`run = ?`, m.Run)
	}
}

// change adds the assignments of c, which may be nil.
func (u *update) change(c *sandbox.Change) error {
	if c == nil {
		return nil
	}
	if c.PausedAt != nil {
		u.assign(`paused_at = ?`, nanos(*c.PausedAt))
	}
	if c.EndAt != nil {
		u.assign(`end_at = ?`, nanos(*c.EndAt))
	}
	if c.Pending != nil {
		u.assign(`pending = ?`, *c.Pending)
	}
	if c.At != nil {
		u.assign(`at_snapshot = ?`, *c.At)
	}
	if c.Saved != nil {
		text, err := json.Marshal(c.Saved)
		if err != nil {
			return err
		}
		u.assign(`saved = ?, image = ?`, string(text), c.Saved.Image)
	}
	if c.Base != nil {
		text, err := json.Marshal(c.Base)
		if err != nil {
			return err
		}
		u.assign(`base = ?, base_copy = ?`, string(text), c.Base.Copy)
	}
	if c.Checked != nil {
		text, err := json.Marshal(c.Checked)
		if err != nil {
			return err
		}
		u.assign(`checked = ?`, string(text))
	}
	return nil
}
