-- Takes a free slot, and a start of a tick if one is wanted, in one atomic step.
--
-- A refusal is decided by one statement, on one snapshot: at that moment every slot was held. It takes no lock that others wait for, and
-- writes nothing. A slot that has ended is taken by whoever locks its row first, so that grants of one name need not wait for each
-- other's commit. Only an attempt that wants a tick, or a new row, or has a limit to keep to, or found the rows of the free slots locked, locks the
-- whole name until its transaction ends, and looks again: then nothing is refused while a slot is free, and no attempt has to be repeated.
--
-- The settings: the table is small and changes all the time, so that the planner, with statistics that are always old,
-- would sooner or later read all of it.
CREATE OR REPLACE FUNCTION {acquire}(
	p_resource text,
	p_slots integer,      -- 0: a mutex
	p_token text,
	p_ttl bigint,         -- µs
	p_tick bigint,        -- µs since 1970, or null
	p_max integer,        -- starts allowed of this tick, 0: as many as there are slots
	p_missed boolean,     -- nobody was there for this tick
	p_ahead bigint,       -- µs that a tick may be ahead of the clock
	p_host text, p_pid bigint, p_tag text,
	p_wait bigint,        -- ms to wait for a lock
	OUT o_verdict text,   -- ok, or the reason
	OUT o_slot integer, OUT o_fence bigint,
	OUT o_declared integer,
	OUT o_success bigint, -- µs since a grant was last released as succeeded, 0: unknown
	OUT o_host text, OUT o_pid bigint, OUT o_tag text, OUT o_since bigint, OUT o_ends bigint, -- full: whose lease ends first, µs
	OUT o_abandoned boolean, -- ok: whoever had the slot before did not release it
	OUT o_version bigint, -- of what is ordered
	OUT o_limit integer,  -- slots that were ordered, 0: none were
	OUT o_order text      -- paused: by whose order
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $tickslot$
#variable_conflict use_column
DECLARE
	n integer := greatest(p_slots, 1);
	window_size CONSTANT integer := 16;
	low integer := floor(random() * ceil(n::float8 / window_size))::integer * window_size;
	high integer := least(low + window_size, n);
	seen record;
	leases record;
	clock timestamptz;
	clock_us bigint;
	ended boolean;
	locked boolean := false;
	free integer;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'these transactions are %, and have to be read committed', current_setting('transaction_isolation')
			USING ERRCODE = '42000', HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
	END IF;
	PERFORM set_config('lock_timeout', p_wait::text, true);
	-- The same attempt asked twice: one waits for the other, and finds its grant. (Keys with one hash only wait for each other.)
	PERFORM pg_advisory_xact_lock(hashtextextended('tickslot token ' || p_token, 0));
	-- A later version may keep here what this one would misread: see tableFormat.
	IF (SELECT f.orders_version FROM {table} AS f WHERE f.resource_name = '' AND f.slot = -1) > 1 THEN
		RAISE EXCEPTION 'a later version of tickslot uses the table, with format %, and this one knows format 1: update this host',
			(SELECT f.orders_version FROM {table} AS f WHERE f.resource_name = '' AND f.slot = -1) USING ERRCODE = '42000';
	END IF;
	o_slot := 0; o_fence := 0; o_host := ''; o_pid := 0; o_tag := ''; o_since := 0; o_ends := 0;
	o_abandoned := false; o_version := 0; o_limit := 0; o_order := '';
	LOOP
		-- 1. One look at everything. Each part is written such that only one index will do: with old statistics all look alike.
		SELECT head.tick, head.tick_starts, head.host_name AS tick_host, head.process_id AS tick_pid, head.process_tag AS tick_tag,
			head.slots, head.succeeded_at, head.orders_version, head.paused_until, head.pause_order, head.slot_limit, head.limit_order,
			(SELECT slot FROM (SELECT * FROM {table} WHERE lock_id = p_token OFFSET 0) AS mine
				WHERE resource_name = p_resource AND slot >= 0 AND expires_at > clock_timestamp() LIMIT 1) AS again,
			first.slot AS first, first.expires_at, first.acquired_at, first.host_name, first.process_id, first.process_tag,
			(SELECT slot FROM {table} WHERE resource_name = p_resource AND slot BETWEEN 0 AND n - 1
				ORDER BY resource_name DESC, slot DESC LIMIT 1) AS last,
			-- Rows that somebody deleted are looked for in one window of slots at a time.
			(SELECT count(*) FROM (SELECT FROM {table} WHERE resource_name = p_resource AND slot BETWEEN low AND high - 1
				ORDER BY resource_name, slot LIMIT window_size) AS there) AS present
		INTO seen
		FROM (SELECT 1) AS one
		LEFT JOIN {table} AS head ON head.resource_name = p_resource AND head.slot = -1
		LEFT JOIN LATERAL (
			SELECT slot, expires_at, acquired_at, host_name, process_id, process_tag FROM {table}
			WHERE resource_name = p_resource AND slot BETWEEN 0 AND n - 1
			ORDER BY resource_name, expires_at LIMIT 1) AS first ON true;
		clock := clock_timestamp();
		clock_us := extract(epoch FROM clock) * 1000000;
		o_declared := coalesce(seen.slots, 0);
		o_success := CASE WHEN seen.succeeded_at IS NULL THEN 0 ELSE greatest(1, extract(epoch FROM clock - seen.succeeded_at) * 1000000) END;

		o_version := coalesce(seen.orders_version, 0);
		o_limit := coalesce(seen.slot_limit, 0);

		-- 2. The same attempt, asked again because its reply was lost.
		IF seen.again IS NOT NULL THEN
			BEGIN
				UPDATE {table} SET expires_at = CASE WHEN revoked IS NULL THEN clock + p_ttl * interval '1 microsecond' ELSE expires_at END
				WHERE resource_name = p_resource AND slot = seen.again AND lock_id = p_token AND expires_at > clock_timestamp()
				RETURNING 'ok', slot, fence INTO o_verdict, o_slot, o_fence;
				IF NOT FOUND THEN
					RAISE SQLSTATE 'TS000';
				END IF;
				RETURN;
			EXCEPTION WHEN SQLSTATE 'TS000' THEN
				o_slot := 0; o_fence := 0;
				CONTINUE;
			END;
		END IF;

		-- 3. What people ordered. With another number of slots than it looked for, it looks again.
		IF seen.orders_version IS NOT NULL THEN
			CASE
				WHEN seen.paused_until > clock THEN
					o_verdict := 'paused'; o_order := coalesce(seen.pause_order, '');
					o_ends := extract(epoch FROM seen.paused_until - clock) * 1000000;
					RETURN;
				WHEN seen.slot_limit = 0 THEN
					o_verdict := 'paused'; o_order := coalesce(seen.limit_order, '');
					RETURN;
				WHEN p_missed AND p_tick < extract(epoch FROM seen.paused_until) * 1000000 THEN
					o_verdict := 'paused'; o_order := coalesce(seen.pause_order, '');
					RETURN;
				WHEN n <> coalesce(seen.slot_limit, greatest(p_slots, 1)) THEN
					n := coalesce(seen.slot_limit, greatest(p_slots, 1));
					low := floor(random() * ceil(n::float8 / window_size))::integer * window_size;
					high := least(low + window_size, n);
					CONTINUE;
				ELSE NULL;
			END CASE;
		END IF;

		-- 4. The tick: a scheduled instant, started at most p_max times, never after a later one.
		o_verdict := CASE
			WHEN p_tick > clock_us + p_ahead THEN 'tick_ahead'
			WHEN p_tick < seen.tick THEN 'tick_late'
			WHEN p_tick = seen.tick AND (seen.tick_starts >= coalesce(nullif(p_max, 0), n) OR p_missed) THEN 'tick_taken'
			WHEN p_missed AND seen.tick IS NULL THEN 'tick_first'
		END;
		IF o_verdict = 'tick_taken' THEN
			o_host := coalesce(seen.tick_host, ''); o_pid := coalesce(seen.tick_pid, 0); o_tag := coalesce(seen.tick_tag, '');
		END IF;
		IF o_verdict IS NOT NULL THEN RETURN; END IF;

		-- 5. A slot that is free: one that ended, a new one, or one whose row is missing.
		ended := coalesce(seen.expires_at <= clock, false);
		free := CASE
			WHEN ended THEN seen.first
			WHEN coalesce(seen.last, -1) < n - 1 THEN coalesce(seen.last, -1) + 1
		END;
		IF free IS NULL AND seen.present < high - low THEN
			free := (SELECT min(i) FROM generate_series(low, high - 1) AS i
				WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = p_resource AND slot = i));
			CONTINUE WHEN free IS NULL; -- somebody has just put that row back
		END IF;
		IF seen.slot_limit IS NOT NULL AND free IS NOT NULL THEN
			-- Leases of any slot count: there are more than the limit after it was lowered.
			SELECT count(*) OVER () AS held, host_name, process_id, process_tag, acquired_at, expires_at INTO leases FROM {table}
			WHERE resource_name = p_resource AND slot >= 0 AND expires_at > clock
			ORDER BY resource_name, expires_at LIMIT 1;
			IF leases.held >= seen.slot_limit THEN
				free := NULL;
				seen.host_name := leases.host_name; seen.process_id := leases.process_id; seen.process_tag := leases.process_tag;
				seen.acquired_at := leases.acquired_at; seen.expires_at := leases.expires_at;
			END IF;
		END IF;
		IF free IS NULL THEN
			o_verdict := 'full';
			o_host := coalesce(seen.host_name, ''); o_pid := coalesce(seen.process_id, 0); o_tag := coalesce(seen.process_tag, '');
			o_since := extract(epoch FROM clock - seen.acquired_at) * 1000000;
			o_ends := extract(epoch FROM seen.expires_at - clock) * 1000000;
			RETURN;
		END IF;

		-- 6. Take it. What fails in a block with EXCEPTION gives back what it has locked: nobody waits while he holds the row of a
		-- slot that was not his after all.
		IF NOT locked AND (p_tick IS NOT NULL OR NOT ended OR seen.slot_limit IS NOT NULL) THEN
			locked := true;
			PERFORM pg_advisory_xact_lock(hashtextextended('tickslot name ' || p_resource, 0));
			CONTINUE;
		END IF;
		BEGIN
			o_abandoned := ended AND seen.expires_at > 'epoch';
			IF NOT locked THEN
				SELECT slot, expires_at > 'epoch' INTO free, o_abandoned FROM {table}
				WHERE resource_name = p_resource AND slot BETWEEN 0 AND n - 1 AND expires_at <= clock
				ORDER BY resource_name, expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
			END IF;
			IF ended THEN
				UPDATE {table} SET lock_id = p_token, fence = greatest(fence + 1, clock_us),
					acquired_at = clock, expires_at = clock + p_ttl * interval '1 microsecond', released_at = NULL, revoked = NULL,
					host_name = p_host, process_id = p_pid, process_tag = p_tag
				WHERE resource_name = p_resource AND slot = free AND expires_at <= clock_timestamp() -- not extended at the last moment,
					AND (expires_at > 'epoch') = o_abandoned -- nor had and released by somebody else,
					AND seen.orders_version IS NOT DISTINCT FROM -- nor has a limit come meanwhile, that others keep to already
						(SELECT orders_version FROM {table} WHERE resource_name = p_resource AND slot = -1)
				RETURNING slot, fence INTO o_slot, o_fence;
			ELSE
				INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, expires_at, host_name, process_id, process_tag)
				VALUES (p_resource, free, p_token, clock_us, clock, clock + p_ttl * interval '1 microsecond', p_host, p_pid, p_tag)
				ON CONFLICT DO NOTHING
				RETURNING slot, fence INTO o_slot, o_fence;
			END IF;
			IF NOT FOUND THEN
				RAISE SQLSTATE 'TS000';
			END IF;
		EXCEPTION WHEN SQLSTATE 'TS000' THEN
			o_slot := 0; o_fence := 0; o_abandoned := false;
			IF NOT locked THEN
				locked := true;
				PERFORM pg_advisory_xact_lock(hashtextextended('tickslot name ' || p_resource, 0));
			END IF;
			CONTINUE;
		END;

		IF p_tick IS NOT NULL OR p_slots IS DISTINCT FROM seen.slots THEN
			INSERT INTO {table} AS head (resource_name, slot, tick, tick_starts, slots, host_name, process_id, process_tag)
			VALUES (p_resource, -1, p_tick, 1, p_slots, p_host, p_pid, p_tag)
			ON CONFLICT (resource_name, slot) DO UPDATE SET
				tick = coalesce(p_tick, head.tick),
				tick_starts = CASE WHEN p_tick IS NULL THEN head.tick_starts WHEN p_tick = head.tick THEN head.tick_starts + 1 ELSE 1 END,
				host_name = CASE WHEN p_tick IS NULL THEN head.host_name ELSE p_host END,
				process_id = CASE WHEN p_tick IS NULL THEN head.process_id ELSE p_pid END,
				process_tag = CASE WHEN p_tick IS NULL THEN head.process_tag ELSE p_tag END,
				slots = p_slots;
		END IF;
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true); -- a grant must survive a crash of the server
		END IF;
		o_verdict := 'ok';
		RETURN;
	END LOOP;
END
$tickslot$;
