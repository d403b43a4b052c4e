-- Returns the leases of a name that have not ended.
CREATE OR REPLACE FUNCTION {list}(p_resource text, p_wait bigint, OUT o_held text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	SELECT coalesce(json_agg(json_build_object(
		'slot', h.slot, 'host', coalesce(h.host_name, ''), 'pid', coalesce(h.process_id, 0),
		'id', coalesce(h.process_tag, ''), 'fence', h.fence,
		'held_for', (extract(epoch FROM h.clock - h.acquired_at) * 1000000)::bigint,
		'renewed_ago', (extract(epoch FROM h.clock - h.renewed_at) * 1000000)::bigint,
		'expires_in', (extract(epoch FROM h.expires_at - h.clock) * 1000000)::bigint
	) ORDER BY h.slot), '[]')::text
	INTO o_held FROM (
		SELECT l.slot, l.host_name, l.process_id, l.process_tag, l.fence, l.acquired_at, l.renewed_at, l.expires_at,
			clock_timestamp() AS clock -- one for all columns
		FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot >= 0 AND l.expires_at > clock_timestamp()
	) AS h;
END
$tickslot$;
