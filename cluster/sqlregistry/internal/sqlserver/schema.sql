-- The registry of tickslot: who is there, who holds what, and what happened.
--
-- sort is 'host', 'lease', 'event' or 'run'. For a lease the columns up to released_at say what the
-- holder last reported. Times are UTC. Names and ids are UTF-8 in binary because every collation
-- takes 'job' and 'job ' for one, and most take 'job' and 'JOB' for one. Ids are cut and end with a
-- hash if they are long.
IF OBJECT_ID({table_text}, N'U') IS NULL
CREATE TABLE {table} (
	sort        varbinary(8) NOT NULL,
	id          varbinary(255) NOT NULL,       -- lease: the slot, if it is a semaphore, a colon, and the name
	lock_name   varbinary(512) NOT NULL,       -- run: the timer
	node_id     nvarchar(300) NOT NULL,        -- machine/pid
	machine     nvarchar(255) NOT NULL,
	pid         bigint NOT NULL,
	holder_id   nvarchar(255) NOT NULL,        -- tells processes with one node_id apart
	kind        nvarchar(255) NOT NULL,        -- event: what happened; run: its outcome
	slot        int NOT NULL,
	slots       int NOT NULL,                  -- 0: a mutex
	fence       bigint NOT NULL,
	grant_id    nvarchar(255) NOT NULL,        -- tells the grants of one holder apart
	acquired_at datetime2(6) NULL,             -- host: when it started
	renewed_at  datetime2(6) NULL,             -- host: when it was last seen
	expires_at  datetime2(6) NULL,
	released_at datetime2(6) NULL,             -- host: when it stopped in good order
	happened_at datetime2(6) NULL,             -- of an event, and the end of a run; else NULL
	ttl         bigint NULL,                   -- of a host, in microseconds
	up_for      bigint NULL,                   -- of a host, when it was last seen, in microseconds
	data        nvarchar(max) NOT NULL,        -- the rest, as JSON
	detail      nvarchar(max) NULL,            -- of a host, as JSON
	PRIMARY KEY CLUSTERED (sort, id),
	INDEX recent NONCLUSTERED (sort, happened_at, id),         -- finds the newest events and runs of all
	INDEX named NONCLUSTERED (sort, lock_name, happened_at, id) -- finds the newest runs of a timer
)
