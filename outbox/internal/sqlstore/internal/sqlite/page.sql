-- The first message of each of the next keys: one step for a key, however many messages it has.
keys(key, n) AS (
	SELECT (SELECT min(m.key) FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > {after}), 1
	UNION ALL
	SELECT (SELECT min(m.key) FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > k.key),
		k.n + 1
	FROM keys AS k WHERE k.key IS NOT NULL AND k.n < {page_size}
),
page AS MATERIALIZED (
	SELECT k.key, (SELECT min(m.seq) FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = k.key) AS seq
	FROM keys AS k WHERE k.key IS NOT NULL
)
