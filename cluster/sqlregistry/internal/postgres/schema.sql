-- The registry of tickslot: who is there, who holds what, and what happened.
--
-- sort is 'host', 'lease', 'event' or 'run'. For a lease the columns up to released_at say what the
-- holder last reported. Text is kept as it is, ids are cut and end with a hash if they are long.
CREATE TABLE IF NOT EXISTS {table} (
	sort        text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,     -- lease: the slot, if it is a semaphore, a colon, and the name
	lock_name   text COLLATE "C" NOT NULL,     -- run: the timer
	node_id     text COLLATE "C" NOT NULL,     -- machine/pid
	machine     text COLLATE "C" NOT NULL,
	pid         bigint NOT NULL,
	holder_id   text COLLATE "C" NOT NULL,     -- tells processes with one node_id apart
	kind        text COLLATE "C" NOT NULL,     -- event: what happened; run: its outcome
	slot        integer NOT NULL,
	slots       integer NOT NULL,              -- 0: a mutex
	fence       bigint NOT NULL,
	grant_id    text COLLATE "C" NOT NULL,     -- tells the grants of one holder apart
	acquired_at timestamptz,                   -- host: when it started
	renewed_at  timestamptz,                   -- host: when it was last seen
	expires_at  timestamptz,
	released_at timestamptz,                   -- host: when it stopped in good order
	happened_at timestamptz,                   -- of an event, and the end of a run; else NULL
	ttl         bigint,                        -- of a host, in microseconds
	up_for      bigint,                        -- of a host, when it was last seen, in microseconds
	data        text COLLATE "C" NOT NULL,     -- the rest, as JSON
	detail      text COLLATE "C",              -- of a host, as JSON
	PRIMARY KEY (sort, id)
) WITH (fillfactor = 70); -- room for the new versions of rows that are written often
