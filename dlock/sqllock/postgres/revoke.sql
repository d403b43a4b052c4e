-- Marks the lease of a slot as revoked, if that fence is held. Who was first is told: a second order changes nothing.
CREATE OR REPLACE FUNCTION {revoke}(p_resource text, p_slot integer, p_fence bigint, p_order text, p_wait bigint, OUT o_held boolean)
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $tickslot$
BEGIN
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- an order must survive a crash of the server
	END IF;
	UPDATE {table} SET revoked = coalesce(revoked, p_order)
	WHERE resource_name = p_resource AND slot = p_slot AND fence = p_fence AND expires_at > clock_timestamp();
	o_held := FOUND;
END
$tickslot$;
