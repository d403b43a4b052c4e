{bounded} SELECT {hint} l.n, l.`key`, COALESCE((
	SELECT TIMESTAMPDIFF(MICROSECOND, MIN(m.next_attempt_at), UTC_TIMESTAMP(6)) FROM (
		{page}
	) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
	WHERE {free}), 0)
FROM (SELECT COUNT(*) AS n, COALESCE(MAX(o.fresh_key), '') AS `key` FROM (
		{page}
	) AS o) AS l
