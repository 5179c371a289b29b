package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/crannog/crannog/internal/egress/approval"
)

const approvalColumns = `id, sandbox, owner, kind, summary, facts, rule, policy, digest, quorum, state, reason, amendment,
	created_at, expires_at, decided_at, spent_at`

const (
	// defaultApprovals is the default limit of a list.
	defaultApprovals = 100
	// eventBatch is how many events are read at once.
	eventBatch = 100
)

// rowsQuerier is the database or a transaction.
type rowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Approval finds an approval by its ID.
func (s *Store) Approval(ctx context.Context, id string) (approval.Approval, error) {
	a, err := findApproval(ctx, s.db, id)
	if err != nil {
		return a, fmt.Errorf("find approval: %w", classify(err))
	}
	return a, nil
}

func findApproval(ctx context.Context, db rowsQuerier, id string) (approval.Approval, error) {
	found, err := queryApprovals(ctx, db, `WHERE id = ?`, id)
	if err != nil {
		return approval.Approval{}, err
	}
	if len(found) == 0 {
		return approval.Approval{}, approval.Unknown(id)
	}
	return found[0], nil
}

// Approvals returns the requests that a query selects, newest first.
func (s *Store) Approvals(ctx context.Context, q approval.Query) ([]approval.Approval, error) {
	terms, args := approvalTerms(q)
	if len(q.States) > 0 {
		terms = append(terms, `state IN (`+placeholders(len(q.States))+`)`)
		for _, state := range q.States {
			args = append(args, string(state))
		}
	}
	limit := q.Limit
	if limit <= 0 {
		limit = defaultApprovals
	}
	found, err := queryApprovals(ctx, s.db, `WHERE `+strings.Join(terms, ` AND `)+` ORDER BY created_at DESC, id DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list approvals: %w", classify(err))
	}
	return found, nil
}

// approvalTerms returns the conditions for owner and sandbox.
func approvalTerms(q approval.Query) (terms []string, args []any) {
	terms = []string{`true`}
	if !q.AllOwners {
		terms, args = append(terms, `owner = ?`), append(args, q.Owner)
	}
	if q.Sandbox != "" {
		terms, args = append(terms, `sandbox = ?`), append(args, q.Sandbox)
	}
	return terms, args
}

// ApprovalEvents returns the next batch of events, whose numbers are greater than after.
func (s *Store) ApprovalEvents(ctx context.Context, q approval.Query, after int64) ([]approval.Event, error) {
	terms, args := approvalTerms(q)
	rows, err := s.db.QueryContext(ctx, `SELECT seq, type, approval FROM approval_events JOIN approvals ON id = approval
		WHERE seq > ? AND `+strings.Join(terms, ` AND `)+` ORDER BY seq LIMIT ?`,
		append(append([]any{after}, args...), eventBatch)...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", classify(err))
	}
	defer rows.Close()
	var out []approval.Event
	for rows.Next() {
		var e approval.Event
		if err := rows.Scan(&e.Seq, &e.Type, &e.Approval.ID); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read events: %w", classify(err))
	}
	return s.fillEvents(ctx, out)
}

// fillEvents reads the requests of events. It omits an event whose request has been deleted.
func (s *Store) fillEvents(ctx context.Context, events []approval.Event) ([]approval.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	ids := make([]any, len(events))
	for i, e := range events {
		ids[i] = e.Approval.ID
	}
	found, err := queryApprovals(ctx, s.db, `WHERE id IN (`+placeholders(len(ids))+`)`, ids...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", classify(err))
	}
	byID := make(map[string]approval.Approval, len(found))
	for _, a := range found {
		byID[a.ID] = a
	}
	var out []approval.Event
	for _, e := range events {
		if a, ok := byID[e.Approval.ID]; ok {
			e.Approval = a
			out = append(out, e)
		}
	}
	return out, nil
}

func queryApprovals(ctx context.Context, db rowsQuerier, clauses string, args ...any) ([]approval.Approval, error) {
	rows, err := db.QueryContext(ctx, `SELECT `+approvalColumns+`, (SELECT json_group_array(json_object('who', who, 'granted', granted,
		'reason', reason, 'at', at) ORDER BY at, who) FROM approval_votes WHERE approval = approvals.id) FROM approvals `+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []approval.Approval
	for rows.Next() {
		a, err := decodeApproval(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// storedVote is a vote as the query above returns it.
type storedVote struct {
	Who     string `json:"who"`
	Granted int    `json:"granted"`
	Reason  string `json:"reason"`
	At      int64  `json:"at"`
}

func decodeApproval(rows *sql.Rows) (approval.Approval, error) {
	var a approval.Approval
	var facts, votes string
	var created, expires, decided, spent int64
	if err := rows.Scan(&a.ID, &a.Sandbox, &a.Owner, &a.Kind, &a.Summary, &facts, &a.Rule, &a.Policy, &a.Digest, &a.Quorum,
		&a.State, &a.Reason, &a.Amendment, &created, &expires, &decided, &spent, &votes); err != nil {
		return a, err
	}
	var stored []storedVote
	if err := json.Unmarshal([]byte(facts), &a.Facts); err != nil {
		return a, fmt.Errorf("facts of approval %s: %w", a.ID, err)
	}
	if err := json.Unmarshal([]byte(votes), &stored); err != nil {
		return a, fmt.Errorf("votes of approval %s: %w", a.ID, err)
	}
	for _, v := range stored {
		a.Votes = append(a.Votes, approval.Vote{Who: v.Who, Granted: v.Granted != 0, Reason: v.Reason, At: timeOf(v.At)})
	}
	a.Created, a.Expires, a.Decided, a.Spent = timeOf(created), timeOf(expires), timeOf(decided), timeOf(spent)
	return a, nil
}

func insertApproval(ctx context.Context, tx *sql.Tx, a approval.Approval) error {
	facts, err := json.Marshal(a.Facts)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO approvals (`+approvalColumns+`) VALUES (`+placeholders(17)+`)`,
		a.ID, a.Sandbox, a.Owner, a.Kind, a.Summary, string(facts), a.Rule, a.Policy, a.Digest, a.Quorum, string(a.State),
		a.Reason, a.Amendment, nanos(a.Created), nanos(a.Expires), nanos(a.Decided), nanos(a.Spent))
	return err
}

// CountPendingApprovals counts the requests that wait for a person.
func (s *Store) CountPendingApprovals(ctx context.Context) (int, error) {
	var n int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM approvals WHERE state = ?`, approval.Pending).Scan(&n); err != nil {
		return 0, fmt.Errorf("count approval requests: %w", classify(err))
	}
	return n, nil
}
