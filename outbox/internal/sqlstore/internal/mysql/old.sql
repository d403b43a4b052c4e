SELECT * FROM (
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (finished)
			WHERE m.state = 'dispatched' AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL {dispatched} MICROSECOND
				AND {dispatched} > 0
			ORDER BY m.finished_at LIMIT {limit} FOR UPDATE SKIP LOCKED) AS d
		UNION ALL
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (finished)
			WHERE m.state = 'dead' AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL {dead} MICROSECOND AND {dead} > 0
			ORDER BY m.finished_at LIMIT {limit} FOR UPDATE SKIP LOCKED) AS e
	) AS b LIMIT {limit}
