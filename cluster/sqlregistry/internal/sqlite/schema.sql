-- The registry of tickslot: who is there, who holds what, and what happened.
--
-- sort is 'host', 'lease', 'event' or 'run'. For a lease the columns up to released_at say what the
-- holder last reported. Times are microseconds since 1970. Ids are cut and end with a hash if they
-- are long.
CREATE TABLE IF NOT EXISTS {table} (
	sort        TEXT NOT NULL,
	id          TEXT NOT NULL,                 -- lease: the slot, if it is a semaphore, a colon, and the name
	lock_name   TEXT NOT NULL,                 -- run: the timer
	node_id     TEXT NOT NULL,                 -- machine/pid
	machine     TEXT NOT NULL,
	pid         INTEGER NOT NULL,
	holder_id   TEXT NOT NULL,                 -- tells processes with one node_id apart
	kind        TEXT NOT NULL,                 -- event: what happened; run: its outcome
	slot        INTEGER NOT NULL,
	slots       INTEGER NOT NULL,              -- 0: a mutex
	fence       INTEGER NOT NULL,
	grant_id    TEXT NOT NULL,                 -- tells the grants of one holder apart
	acquired_at INTEGER,                       -- host: when it started
	renewed_at  INTEGER,                       -- host: when it was last seen
	expires_at  INTEGER,
	released_at INTEGER,                       -- host: when it stopped in good order
	happened_at INTEGER,                       -- of an event, and the end of a run; else NULL
	ttl         INTEGER,                       -- of a host, in microseconds
	up_for      INTEGER,                       -- of a host, when it was last seen, in microseconds
	data        TEXT NOT NULL,                 -- the rest, as JSON
	detail      TEXT,                          -- of a host, as JSON
	PRIMARY KEY (sort, id)
) STRICT;
