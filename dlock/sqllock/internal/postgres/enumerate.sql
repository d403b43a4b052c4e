-- Looks at the p_limit rows after (p_after, p_after_slot), and returns the leases among them, of
-- names with a prefix, that have not ended or were released less than p_released ago. The prefix is
-- no condition of the range, because a page reads no more than p_limit rows.
CREATE OR REPLACE FUNCTION {enumerate}(p_prefix text, p_after text, p_after_slot integer, p_limit integer,
	p_released bigint, p_wait bigint, OUT o_leases text, OUT o_seen bigint, OUT o_last text, OUT o_last_slot integer)
LANGUAGE plpgsql
{settings}
SET enable_sort = off
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true); -- of the table: it waits for no row
	WITH page AS MATERIALIZED (
		SELECT l.resource_name, l.slot, l.fence, l.acquired_at, l.renewed_at, l.expires_at, l.released_at, l.host_name,
			l.process_id, l.process_tag
		FROM {table} AS l WHERE (l.resource_name, l.slot) > (p_after, p_after_slot)
		ORDER BY l.resource_name, l.slot LIMIT p_limit
	), live AS (
		SELECT page.*, clock_timestamp() AS clock FROM page
		WHERE page.slot >= 0 AND starts_with(page.resource_name, p_prefix) AND (page.expires_at > clock_timestamp()
			OR page.expires_at = 'epoch' AND abs(extract(epoch FROM clock_timestamp() - page.released_at)) * 1000000
				< p_released)
	)
	SELECT coalesce((SELECT json_agg(json_build_object(
			'n', live.resource_name, 'slot', live.slot, 'host', coalesce(live.host_name, ''),
			'pid', coalesce(live.process_id, 0), 'id', coalesce(live.process_tag, ''), 'fence', live.fence,
			'held_for', (extract(epoch FROM live.clock - live.acquired_at) * 1000000)::bigint,
			'renewed_ago', (extract(epoch FROM live.clock - live.renewed_at) * 1000000)::bigint,
			'expires_in', (extract(epoch FROM live.expires_at - live.clock) * 1000000)::bigint,
			'released_ago', CASE WHEN live.expires_at = 'epoch'
				THEN (extract(epoch FROM live.clock - live.released_at) * 1000000)::bigint END
		)) FROM live), '[]')::text,
		(SELECT count(*) FROM page), coalesce(last.resource_name, ''), coalesce(last.slot, 0)
	INTO o_leases, o_seen, o_last, o_last_slot
	FROM (SELECT 1) AS one LEFT JOIN LATERAL (
		SELECT page.resource_name, page.slot FROM page ORDER BY page.resource_name DESC, page.slot DESC LIMIT 1
	) AS last ON true;
END
$tickslot$;
