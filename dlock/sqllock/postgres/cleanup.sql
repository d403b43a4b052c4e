WITH page AS MATERIALIZED (
	SELECT resource_name, slot FROM {table}
	WHERE (resource_name, slot) > ($1::text, $2::integer)
	ORDER BY resource_name, slot LIMIT $3::integer
), gone AS (
	DELETE FROM {table} AS l USING page
	WHERE l.resource_name = page.resource_name AND l.slot = page.slot
	AND CASE WHEN l.slot >= 0
		THEN greatest(l.acquired_at, l.expires_at, l.released_at) < clock_timestamp() - $4::bigint * interval '1 microsecond'
			AND l.fence < extract(epoch FROM clock_timestamp()) * 1000000
			-- from the last slot on: a gap would hide the slot for a while
			AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot > l.slot
				AND greatest(s.acquired_at, s.expires_at, s.released_at) >= clock_timestamp() - $4::bigint * interval '1 microsecond')
		ELSE coalesce(l.tick, 0) < extract(epoch FROM clock_timestamp()) * 1000000 - $4::bigint
			AND l.orders_version IS NULL -- orders stay
			AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot >= 0)
		END
	RETURNING 1
)
SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM gone),
	coalesce((SELECT resource_name FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), ''),
	coalesce((SELECT slot FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), 0)
