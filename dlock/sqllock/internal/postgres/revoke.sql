-- Marks the lease of a slot as revoked if it is held with that fence. The first revocation wins: a
-- second one changes nothing.
CREATE OR REPLACE FUNCTION {revoke}(p_resource text, p_slot integer, p_fence bigint, p_origin text, p_wait bigint,
	OUT o_held boolean)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- an update must survive a crash of the server
	END IF;
	UPDATE {table} AS l SET revoked = coalesce(l.revoked, p_origin)
	WHERE l.resource_name = p_resource AND l.slot = p_slot AND l.fence = p_fence AND l.expires_at > clock_timestamp();
	o_held := FOUND;
END
$tickslot$;
