SELECT o.seq FROM (
	SELECT * FROM (SELECT m.seq FROM {messages} AS m
		WHERE m.state = 'dispatched' AND m.finished_at < {now} - {dispatched} AND {dispatched} > 0
		ORDER BY m.finished_at LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT m.seq FROM {messages} AS m
		WHERE m.state = 'dead' AND m.finished_at < {now} - {dead} AND {dead} > 0
		ORDER BY m.finished_at LIMIT {limit})
	LIMIT {limit}) AS o
