-- The first message of each of the next keys: one step for a key, however many messages it has.
keys(key, n) AS (
	SELECT (SELECT m.key FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > {after}
		ORDER BY m.key LIMIT 1), 1
	UNION ALL
	SELECT (SELECT m.key FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > k.key
		ORDER BY m.key LIMIT 1), k.n + 1
	FROM keys AS k WHERE k.key IS NOT NULL AND k.n < {page_size}
),
page AS MATERIALIZED (
	SELECT k.key, (SELECT m.seq FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key = k.key
		ORDER BY m.seq LIMIT 1) AS seq
	FROM keys AS k WHERE k.key IS NOT NULL
)
