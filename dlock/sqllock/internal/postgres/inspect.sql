-- Returns the overrides of those names that the table knows.
CREATE OR REPLACE FUNCTION {inspect}(p_resources text, p_values boolean, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	SELECT coalesce(json_agg(json_build_object(
		'n', h.resource_name, 'version', coalesce(h.overrides_version, 0),
		'pause_left', coalesce((extract(epoch FROM h.paused_until - clock_timestamp()) * 1000000)::bigint, 0),
		'pause_origin', coalesce(h.pause_origin, ''),
		'limit', h.slot_limit, 'limit_origin', coalesce(h.limit_origin, ''),
		'triggered_at', h.triggered_at,
		'trigger_age', coalesce((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - h.triggered_at, 0),
		'trigger_origin', coalesce(h.trigger_origin, ''),
		'tick', h.tick, 'host', coalesce(h.host_name, ''), 'pid', coalesce(h.process_id, 0),
		'id', coalesce(h.process_tag, ''),
		'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		'value', CASE WHEN p_values THEN coalesce(h.kept_value, '') ELSE '' END
	)), '[]')::text
	INTO o_answers FROM {table} AS h
	WHERE h.slot = -1 AND h.resource_name IN (SELECT json_array_elements_text(p_resources::json));
END
$tickslot$;
