-- Returns the leases of a name that have not ended.
CREATE OR REPLACE FUNCTION {list}(p_resource text, p_wait bigint, OUT o_held text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	PERFORM set_config('lock_timeout', p_wait::text, true);
	SELECT coalesce(json_agg(json_build_object(
		'slot', l.slot, 'host', coalesce(l.host_name, ''), 'pid', coalesce(l.process_id, 0),
		'id', coalesce(l.process_tag, ''), 'fence', l.fence,
		'since', (extract(epoch FROM clock_timestamp() - l.acquired_at) * 1000000)::bigint,
		'renewed', (extract(epoch FROM clock_timestamp() - l.renewed_at) * 1000000)::bigint,
		'ends', (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000000)::bigint
	) ORDER BY l.slot), '[]')::text
	INTO o_held FROM {table} AS l
	WHERE l.resource_name = p_resource AND l.slot >= 0 AND l.expires_at > clock_timestamp();
END
$tickslot$;
