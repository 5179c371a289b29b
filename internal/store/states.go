package store

// statesSchema adds the columns about the origin of a sandbox, and the table of snapshots. The
// lifetime of rows of earlier versions is unknown, so they get the lifetime of their start.
const statesSchema = `
	ALTER TABLE sandboxes ADD COLUMN paused_at INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE sandboxes ADD COLUMN on_end TEXT NOT NULL DEFAULT '{}';
	ALTER TABLE sandboxes ADD COLUMN origin TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN at_snapshot TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN parent TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN actor_pid INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE sandboxes ADD COLUMN actor_start TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN create_timeout INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE sandboxes ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
	ALTER TABLE sandboxes ADD COLUMN base TEXT NOT NULL DEFAULT '{}';
	ALTER TABLE sandboxes ADD COLUMN base_copy TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN saved TEXT NOT NULL DEFAULT '{}';
	ALTER TABLE sandboxes ADD COLUMN image TEXT NOT NULL DEFAULT '';
	ALTER TABLE sandboxes ADD COLUMN pending TEXT NOT NULL DEFAULT '';
	UPDATE sandboxes SET create_timeout = end_at - started_at WHERE end_at > started_at;
	CREATE INDEX sandboxes_by_image ON sandboxes (image) WHERE image <> '';
	CREATE TABLE snapshots (
		id TEXT PRIMARY KEY,
		name TEXT NOT NULL,
		owner TEXT NOT NULL,
		sandbox TEXT NOT NULL,
		parent TEXT NOT NULL,
		template_id TEXT NOT NULL,
		template TEXT NOT NULL,
		files_only INTEGER NOT NULL,
		created_at INTEGER NOT NULL,
		bytes INTEGER NOT NULL,
		format TEXT NOT NULL,
		sum TEXT NOT NULL,
		base TEXT NOT NULL,
		base_copy TEXT NOT NULL,
		limits TEXT NOT NULL,
		workspace TEXT NOT NULL,
		access TEXT NOT NULL,
		pid INTEGER NOT NULL,
		process_start TEXT NOT NULL
	) STRICT;
	CREATE INDEX snapshots_by_time ON snapshots (created_at, id);
	CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox, created_at);
	CREATE INDEX snapshots_by_parent ON snapshots (parent);
	CREATE UNIQUE INDEX snapshots_name ON snapshots (owner, name) WHERE name <> '' AND sum <> '';`

// enginesSchema sets the engine in rows of earlier versions, which had only gVisor. A snapshot has
// the engine of its sandbox, or gVisor if that sandbox's row has been removed.
const enginesSchema = `
	UPDATE sandboxes SET engine = 'gvisor' WHERE engine = '';
	ALTER TABLE snapshots ADD COLUMN engine TEXT NOT NULL DEFAULT 'gvisor';
	UPDATE snapshots SET engine = (SELECT engine FROM sandboxes WHERE id = snapshots.sandbox)
		WHERE sandbox IN (SELECT id FROM sandboxes);`
