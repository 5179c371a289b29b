package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Position implements Recorder.
func (l *Log) Position(ctx context.Context, source string) (uint64, error) {
	if err := l.queue.flush(ctx); err != nil {
		return 0, err
	}
	db, err := l.index.current(ctx)
	if err != nil {
		return 0, fmt.Errorf("position of %s: %w", source, err)
	}
	var at int64
	err = db.QueryRowContext(ctx, `SELECT at FROM positions WHERE source = ?`, source).Scan(&at)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("position of %s: %w", source, err)
	}
	return uint64(at), nil
}

// terms returns the SQL conditions of a filter.
func (f Filter) terms(ctx context.Context, tx *sql.Tx) (string, []any, error) {
	terms, args := []string{`true`}, []any{}
	add := func(term string, values ...any) { terms, args = append(terms, term), append(args, values...) }
	if f.Before > 0 {
		add(`seq < ?`, f.Before)
	}
	if f.Sandbox != "" {
		add(`sandbox = ? AND sandbox <> ''`, f.Sandbox)
	}
	if f.Sandboxes != nil {
		in, values := inList(f.Sandboxes)
		add(`sandbox IN `+in+` AND sandbox <> ''`, values...)
	}
	if len(f.Kinds) > 0 {
		in, values := inList(f.Kinds)
		add(`kind IN `+in, values...)
	}
	if !f.Since.IsZero() {
		// Times almost always increase with the numbers, so this skips older entries.
		var from sql.NullInt64
		if err := tx.QueryRowContext(ctx, `SELECT min(seq) FROM entries WHERE time >= ?`, f.Since.UnixMicro()).Scan(&from); err != nil {
			return "", nil, err
		}
		if !from.Valid {
			return `false`, nil, nil
		}
		add(`seq >= ? AND time >= ?`, from.Int64, f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		add(`time < ?`, f.Until.UnixMicro())
	}
	return strings.Join(terms, ` AND `), args, nil
}

// inList returns the placeholders and arguments of an SQL list.
func inList[T ~string](values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	return `(` + strings.TrimSuffix(strings.Repeat(`?,`, len(values)), `,`) + `)`, args
}

// find returns the positions of at most left matching entries whose numbers are greater than after.
// last is the number up to which it searched. broken is the damage that ended the search early.
func (l *Log) find(ctx context.Context, filter Filter, after int64, left int) (_ []spot, last int64, broken, err error) {
	db, err := l.index.current(ctx)
	if isDamage(err) && db != nil {
		broken, err = err, nil
	}
	if err != nil {
		return nil, after, nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, after, nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	where, args, err := filter.terms(ctx, tx)
	if err != nil {
		return nil, after, nil, err
	}
	limit := readBatch
	if filter.Limit > 0 && left < limit || filter.Newest {
		limit = left
	}
	order := ``
	if filter.Newest {
		order = ` DESC`
	}
	rows, err := tx.QueryContext(ctx, `SELECT seq, segment, place FROM entries WHERE seq > ? AND `+where+` ORDER BY seq`+order+` LIMIT ?`,
		append(append([]any{after}, args...), limit)...)
	if err != nil {
		return nil, after, nil, err
	}
	defer rows.Close()
	var out []spot
	for rows.Next() {
		var s spot
		if err := rows.Scan(&s.seq, &s.first, &s.offset); err != nil {
			return nil, after, nil, err
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		return nil, after, nil, err
	}
	if filter.Newest {
		slices.Reverse(out)
	}
	if len(out) == limit && !filter.Newest {
		return out, out[len(out)-1].seq, broken, nil
	}
	// All existing entries were searched.
	if err := tx.QueryRowContext(ctx, `SELECT next - 1 FROM state`).Scan(&last); err != nil {
		return nil, after, nil, err
	}
	return out, max(last, after), broken, nil
}
