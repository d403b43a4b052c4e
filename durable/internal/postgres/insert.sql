-- The statement may be one of the application's transaction, so all names are qualified, and all
-- arguments are texts, numbers and bytes, which every driver sends. $5: run_at, or '' and $6: after
-- how many microseconds. It answers 0 if another transaction has inserted the key since this
-- statement began.
WITH fresh AS (
	INSERT INTO {runs} (handler, schedule, due_at, backfill, run_at, priority, own_attempts, max_attempts, key, payload,
		queued_by, queued_note, traceparent)
	VALUES ($1::text, nullif($2::text, ''), nullif($3::text, '')::timestamptz, $4::boolean,
		coalesce(nullif($5::text, '')::timestamptz,
			pg_catalog.clock_timestamp() + $6::bigint * interval '1 microsecond'),
		$7::smallint, $8::integer, $8::integer, nullif($9::text, ''), $10::bytea, $11::text, $12::text,
		nullif($13::text, ''))
	ON CONFLICT (handler, key) WHERE key IS NOT NULL DO NOTHING
	RETURNING id
)
SELECT coalesce((SELECT id FROM fresh),
		(SELECT r.id FROM {runs} AS r WHERE r.handler = $1::text AND r.key = nullif($9::text, '')), 0),
	EXISTS (SELECT FROM fresh)
