package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
)

var _ approval.Store = (*Store)(nil)

// keepApprovals is how long an approval request is stored after its creation. The audit log has its
// own entries.
const keepApprovals = 30 * 24 * time.Hour

// RaiseApproval returns the open request with a's digest. If there is none, it adds a.
func (s *Store) RaiseApproval(ctx context.Context, a approval.Approval, b approval.Bounds) (approval.Approval, error) {
	out := a
	err := s.transact(ctx, "ask for approval", func(tx *sql.Tx) error {
		if _, err := expireApprovals(ctx, tx, a.Created); err != nil {
			return err
		}
		// A denial remains in force until the request would have expired. Otherwise a program could
		// repeat the request until a person gives in.
		existing, err := queryApprovals(ctx, tx, `WHERE digest = ? AND (state IN ('pending', 'approved') OR state = 'denied' AND expires_at > ?)
			ORDER BY state = 'denied', created_at DESC LIMIT 1`, a.Digest, nanos(a.Created))
		if err != nil {
			return err
		}
		if len(existing) > 0 {
			out = existing[0]
			return nil
		}
		if err := checkBounds(ctx, tx, a, b); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM approvals WHERE created_at < ?`, nanos(a.Created.Add(-keepApprovals))); err != nil {
			return err
		}
		return insertApproval(ctx, tx, a)
	})
	return out, err
}

// checkBounds returns an error if the sandbox of a has too many pending or recent requests.
func checkBounds(ctx context.Context, tx *sql.Tx, a approval.Approval, b approval.Bounds) error {
	var open, recent int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE created_at > ?)
		FROM approvals WHERE sandbox = ? AND kind = ? AND (state = 'pending' OR created_at > ?)`,
		nanos(a.Created.Add(-b.Window)), a.Sandbox, a.Kind, nanos(a.Created.Add(-b.Window))).Scan(&open, &recent)
	if err != nil {
		return err
	}
	if open >= b.Open {
		return fault.Newf(fault.Exhausted, "too_many_questions", "%d approval requests of this sandbox are pending", open).
			WithHint("wait until a person has decided them")
	}
	if recent >= b.Recent {
		return fault.Newf(fault.Exhausted, "too_many_questions", "this sandbox made %d approval requests within %v", recent, b.Window).
			WithHint("try later, or allow the action in its policy")
	}
	return nil
}

// SpendApproval uses a grant. The condition and the change are one statement, so that of several
// callers only one succeeds.
func (s *Store) SpendApproval(ctx context.Context, id, digest string, at time.Time) (bool, error) {
	return s.execChanged(ctx, "spend approval "+id, `UPDATE approvals SET state = 'spent', spent_at = ?
		WHERE id = ? AND digest = ? AND state = 'approved' AND expires_at > ?`, nanos(at), id, digest, nanos(at))
}

// VoteApproval stores one person's vote.
func (s *Store) VoteApproval(ctx context.Context, id string, v approval.Vote) (approval.Approval, error) {
	var a approval.Approval
	err := s.transact(ctx, "answer approval", func(tx *sql.Tx) (err error) {
		if a, err = findApproval(ctx, tx, id); err != nil {
			return err
		}
		if err := checkVote(a, v); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO approval_votes (approval, who, granted, reason, at) VALUES (?, ?, ?, ?, ?)`,
			id, v.Who, v.Granted, v.Reason, nanos(v.At)); err != nil {
			return err
		}
		if err := updateState(ctx, tx, id, v); err != nil {
			return err
		}
		a, err = findApproval(ctx, tx, id)
		return err
	})
	return a, err
}

// updateState sets the state of an approval request according to its votes.
func updateState(ctx context.Context, tx *sql.Tx, id string, v approval.Vote) error {
	if !v.Granted {
		_, err := tx.ExecContext(ctx, `UPDATE approvals SET state = 'denied', reason = ?, decided_at = ? WHERE id = ?`, v.Reason, nanos(v.At), id)
		return err
	}
	// The key of approval_votes is the person, so this counts people.
	_, err := tx.ExecContext(ctx, `UPDATE approvals SET state = 'approved', reason = ?, amendment = ?, decided_at = ? WHERE id = ?
		AND quorum <= (SELECT count(*) FROM approval_votes WHERE approval = approvals.id AND granted)`,
		v.Reason, v.Amendment, nanos(v.At), id)
	return err
}

// checkVote returns an error if the vote v on a is too late or was cast before.
func checkVote(a approval.Approval, v approval.Vote) error {
	const code = "approval_over"
	switch {
	case a.State.Open() && !v.At.Before(a.Expires), a.State == approval.Expired:
		return fault.Newf(fault.Conflict, code, "approval %s has expired", a.ID).WithHint("let the program try again; that makes a new request")
	case !a.State.Open():
		return fault.Newf(fault.Conflict, code, "approval %s is %s already", a.ID, a.State)
	case !v.Granted:
		return nil
	case a.State == approval.Approved:
		return fault.Newf(fault.Conflict, code, "approval %s is approved already", a.ID)
	}
	for _, earlier := range a.Votes {
		if earlier.Who == v.Who {
			return fault.Newf(fault.Conflict, "already_voted", "you have approved %s before, and it needs %d different people", a.ID, a.Quorum).
				WithHint("ask " + approval.Others(a.Owner))
		}
	}
	return nil
}

// RetireApprovals ends the open requests of a sandbox. If keep is not empty, it keeps requests
// under the policy with that digest, and grants that changed the policy.
func (s *Store) RetireApprovals(ctx context.Context, sandbox, keep, reason string, at time.Time) error {
	_, err := s.execChanged(ctx, "retire approvals of "+sandbox, `UPDATE approvals SET state = 'expired', reason = ?, decided_at = ?
		WHERE sandbox = ? AND state IN ('pending', 'approved') AND (? = '' OR policy <> ? AND amendment = '')`,
		reason, nanos(at), sandbox, keep, keep)
	return err
}

// DropAmendment removes the policy change of a grant.
func (s *Store) DropAmendment(ctx context.Context, id string) error {
	_, err := s.execChanged(ctx, "change approval "+id, `UPDATE approvals SET amendment = '' WHERE id = ?`, id)
	return err
}

// SweepApprovals ends expired requests and returns the number of the last event. It writes only if
// a request has expired, because every waiting caller calls it once a second.
func (s *Store) SweepApprovals(ctx context.Context, at time.Time) (int64, error) {
	var expired bool
	var last int64
	read := func() error {
		return s.db.QueryRowContext(ctx, `SELECT
			EXISTS (SELECT 1 FROM approvals WHERE state IN ('pending', 'approved') AND expires_at <= ?),
			coalesce((SELECT max(seq) FROM approval_events), 0)`, nanos(at)).Scan(&expired, &last)
	}
	err := read()
	if err == nil && expired {
		err = s.transact(ctx, "sweep approvals", func(tx *sql.Tx) error { _, err := expireApprovals(ctx, tx, at); return err })
		err = errors.Join(err, read())
	}
	if err != nil {
		return 0, fmt.Errorf("sweep approvals: %w", classify(err))
	}
	return last, nil
}

func expireApprovals(ctx context.Context, tx *sql.Tx, at time.Time) (sql.Result, error) {
	return tx.ExecContext(ctx, `UPDATE approvals SET state = 'expired', decided_at = expires_at,
		reason = CASE state WHEN 'pending' THEN 'it was not decided in time' ELSE 'it was approved, and not used in time' END
		WHERE state IN ('pending', 'approved') AND expires_at <= ?`, nanos(at))
}

// transact runs work in a transaction that takes the write lock at its beginning.
func (s *Store) transact(ctx context.Context, what string, work func(*sql.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.retryFull(func() error { return s.runTransaction(ctx, what, work) })
}

func (s *Store) runTransaction(ctx context.Context, what string, work func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, classify(err))
	}
	if err = work(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, classify(err))
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, undo)
		}
	}
	return err
}
