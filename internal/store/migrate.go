package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
)

// migrations create the tables of this version from an empty file. The file's user_version counts
// the applied ones. Append only: a released migration never changes.
var migrations = []string{
	`CREATE TABLE sandboxes (
		id TEXT PRIMARY KEY,
		owner TEXT NOT NULL,
		name TEXT NOT NULL,
		state TEXT NOT NULL,
		template_id TEXT NOT NULL,
		template TEXT NOT NULL,
		started_at INTEGER NOT NULL,
		end_at INTEGER NOT NULL,
		stopped_at INTEGER NOT NULL,
		reason TEXT NOT NULL,
		ephemeral INTEGER NOT NULL,
		pid INTEGER NOT NULL,
		process_start TEXT NOT NULL,
		access_token TEXT NOT NULL,
		traffic_token TEXT NOT NULL,
		control_token TEXT NOT NULL,
		metadata TEXT NOT NULL,
		env TEXT NOT NULL,
		limits TEXT NOT NULL,
		mask_request_host TEXT NOT NULL,
		workspace TEXT NOT NULL,
		engine TEXT NOT NULL,
		boundary TEXT NOT NULL,
		enforced TEXT NOT NULL
	) STRICT;
	CREATE INDEX sandboxes_by_start ON sandboxes (started_at, id);
	CREATE INDEX sandboxes_by_owner ON sandboxes (owner, started_at, id);
	CREATE INDEX sandboxes_by_state ON sandboxes (state, owner);
	CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (owner, name)
		WHERE name <> '' AND state <> 'stopped';
	CREATE TABLE sandbox_logs (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
		at INTEGER NOT NULL,
		level TEXT NOT NULL,
		message TEXT NOT NULL,
		fields TEXT NOT NULL
	) STRICT;
	CREATE INDEX sandbox_logs_by_sandbox ON sandbox_logs (sandbox, seq);
	CREATE TABLE keys (
		id TEXT PRIMARY KEY,
		name TEXT NOT NULL,
		hash BLOB NOT NULL UNIQUE,
		created_at INTEGER NOT NULL,
		used_at INTEGER NOT NULL
	) STRICT;`,
	// Triggers write the events, so that every change of an approval request has one.
	`CREATE TABLE approvals (
		id TEXT PRIMARY KEY,
		sandbox TEXT NOT NULL,
		owner TEXT NOT NULL,
		kind TEXT NOT NULL,
		summary TEXT NOT NULL,
		facts TEXT NOT NULL,
		rule TEXT NOT NULL,
		policy TEXT NOT NULL,
		digest TEXT NOT NULL,
		quorum INTEGER NOT NULL CHECK (quorum > 0),
		state TEXT NOT NULL,
		reason TEXT NOT NULL,
		amendment TEXT NOT NULL,
		created_at INTEGER NOT NULL,
		expires_at INTEGER NOT NULL,
		decided_at INTEGER NOT NULL,
		spent_at INTEGER NOT NULL
	) STRICT;
	CREATE UNIQUE INDEX approvals_open ON approvals (digest) WHERE state IN ('pending', 'approved');
	CREATE INDEX approvals_by_digest ON approvals (digest, created_at);
	CREATE INDEX approvals_by_state ON approvals (state, expires_at);
	CREATE INDEX approvals_by_sandbox ON approvals (sandbox, kind, created_at);
	CREATE INDEX approvals_by_time ON approvals (created_at, id);
	CREATE TABLE approval_votes (
		approval TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
		who TEXT NOT NULL,
		granted INTEGER NOT NULL,
		reason TEXT NOT NULL,
		at INTEGER NOT NULL,
		PRIMARY KEY (approval, who)
	) STRICT, WITHOUT ROWID;
	CREATE TABLE approval_events (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		approval TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
		type TEXT NOT NULL
	) STRICT;
	CREATE INDEX approval_events_by_approval ON approval_events (approval);
	CREATE TRIGGER approval_asked AFTER INSERT ON approvals BEGIN
		INSERT INTO approval_events (approval, type) VALUES (new.id, new.state);
	END;
	CREATE TRIGGER approval_moved AFTER UPDATE OF state ON approvals WHEN new.state <> old.state BEGIN
		INSERT INTO approval_events (approval, type) VALUES (new.id, new.state);
	END;
	CREATE TRIGGER approval_voted AFTER INSERT ON approval_votes BEGIN
		INSERT INTO approval_events (approval, type) VALUES (new.approval, 'vote');
	END;`,
	// A version's seq is the generation to which approval requests are bound. It is never reused,
	// even if a secret is removed and created again.
	`CREATE TABLE secrets (
		id TEXT PRIMARY KEY,
		owner TEXT NOT NULL,
		name TEXT NOT NULL COLLATE NOCASE,
		version INTEGER NOT NULL,
		metadata TEXT NOT NULL,
		created_at INTEGER NOT NULL,
		updated_at INTEGER NOT NULL,
		UNIQUE (owner, name)
	) STRICT;
	CREATE TABLE secret_versions (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		secret TEXT NOT NULL REFERENCES secrets (id) ON DELETE CASCADE,
		version INTEGER NOT NULL,
		sealed BLOB NOT NULL,
		wrapped BLOB NOT NULL,
		wrapped_by TEXT NOT NULL,
		created_at INTEGER NOT NULL,
		retired_at INTEGER NOT NULL,
		UNIQUE (secret, version)
	) STRICT;
	CREATE INDEX secret_versions_by_key ON secret_versions (wrapped_by, seq);`,
	`ALTER TABLE sandboxes ADD COLUMN access TEXT NOT NULL DEFAULT '{"net":"none"}';
	ALTER TABLE sandboxes ADD COLUMN policy_level TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN policy_digest TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN checked TEXT NOT NULL DEFAULT '[]';`,
	statesSchema,
	consoleSchema,
	// Existing keys were created for all purposes.
	`ALTER TABLE keys ADD COLUMN opens TEXT NOT NULL DEFAULT 'api'`,
	// Filling and emptying this table leaves free pages in the file, see room.go.
	`CREATE TABLE room (filler BLOB NOT NULL) STRICT`,
	enginesSchema,
	// Snapshots of templates belong to a version of a template.
	`ALTER TABLE snapshots ADD COLUMN kept_for TEXT NOT NULL DEFAULT ''`,
	lockSetsSchema,
}

// migrate updates the tables. If several processes start together, they take turns, because the
// transaction takes the file's write lock at its beginning.
func migrate(ctx context.Context, db *sql.DB) (err error) {
	version, err := schemaVersion(ctx, db)
	if err != nil || version == len(migrations) {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if version, err = schemaVersion(ctx, tx); err != nil {
		return err
	}
	for i := version; i < len(migrations); i++ {
		if _, err = tx.ExecContext(ctx, migrations[i]); err != nil {
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
	}
	if _, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(migrations))); err != nil {
		return err
	}
	return tx.Commit()
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func schemaVersion(ctx context.Context, q querier) (int, error) {
	var version int
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	if version > len(migrations) {
		return 0, fault.Newf(fault.Unsupported, "state_too_new",
			"the state was written by a later version (schema %d, this one knows %d)", version, len(migrations)).
			WithHint("use that version, or another state directory")
	}
	return version, nil
}
