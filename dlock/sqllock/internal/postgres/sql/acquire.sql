-- name: settings
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
SET enable_indexscan = on
SET enable_indexonlyscan = on
SET enable_nestloop = on
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off

-- name: session
-- A session may have settings of its role, its database, or another client of a pooler. With these
-- settings, a call would decide on stale rows, or be canceled while it waits, which would look like
-- a server outage. The caller repeats the call in a transaction that has our settings.
	IF current_setting('transaction_isolation') <> 'read committed'
		OR nullif(current_setting('statement_timeout'), '0')::interval < p_wait * interval '0.5 millisecond' THEN
		RAISE EXCEPTION 'the session has transaction_isolation = % and statement_timeout = %',
			current_setting('transaction_isolation'), current_setting('statement_timeout') USING ERRCODE = 'TS001';
	END IF;

-- name: lock_names
-- Locks the name and the names of the further semaphores, in the same order for every request.
			v_locked := true;
			PERFORM set_config('lock_timeout',
				greatest(1, extract(epoch FROM v_until - clock_timestamp()) * 1000)::bigint::text, true);
			IF p_also IS NULL THEN
				PERFORM pg_advisory_xact_lock(hashtextextended('tickslot name ' || p_resource, 0));
			ELSE
				PERFORM pg_advisory_xact_lock(k.key) FROM (
					SELECT hashtextextended('tickslot name ' || n.name, 0) AS key FROM (SELECT p_resource AS name
						UNION ALL SELECT a ->> 0 FROM json_array_elements(p_also::json) AS a) AS n
					ORDER BY 1 OFFSET 0) AS k;
			END IF;

-- name: create_acquire
-- Takes a free slot, a start of the tick if the request has one, and a slot of each further
-- semaphore, in one transaction.
--
-- A refusal comes from one statement on one snapshot and takes no lock that others wait for. It
-- writes only to make a schedule known, or to shorten a lease from a time when the clock was ahead.
-- An expired slot goes to the session that locks its row first, so grants of one name do not wait
-- for each other to commit. Some requests take an advisory lock on the name, and on those of the
-- further semaphores, until they commit, and read again: requests that have a tick or further
-- semaphores, need a new row, have a limit to keep, or found all free rows locked. So no request is
-- refused while a slot is free, and callers do not have to repeat requests.
--
-- The function waits for no row while another slot is free, because an open transaction may keep a
-- row locked for hours. If the rows of all free slots are locked, it tries again until p_wait is
-- over, because grants, releases and extensions lock rows only for a moment.
CREATE OR REPLACE FUNCTION {acquire}(
	p_resource text,
	p_slots integer,      -- 0 for a mutex
	p_token text,
	p_ttl bigint,         -- µs
	p_tick bigint,        -- µs since 1970, or null
	p_max integer,        -- allowed starts of this tick
	p_missed bigint,      -- when this tick came due, if it was missed, µs since 1970, or null
	p_schedule bigint,    -- schedule of this tick
	p_ahead bigint,       -- µs that a tick may be ahead of the clock
	p_host text, p_pid bigint, p_tag text,
	p_wait bigint,        -- ms to wait for a lock
	p_also text DEFAULT NULL, -- the further semaphores: [[name, slots, rate, per in µs], …]
	p_delay bigint DEFAULT NULL, -- µs since the last lease ended, or null. With a delay, p_tick is null
	OUT o_reason text,   -- ok, or the reason
	OUT o_slot integer, OUT o_fence bigint,
	OUT o_declared integer,
	OUT o_success bigint, -- µs since a grant was last released as succeeded; 0: unknown
	-- full: the holder whose lease ends first, since when, and when it ends, µs
	OUT o_host text, OUT o_pid bigint, OUT o_tag text, OUT o_since bigint, OUT o_ends bigint,
	OUT o_previous_expired boolean, -- ok: the previous lease expired without a release
	OUT o_version bigint, -- of the overrides
	OUT o_limit integer,  -- overridden number of slots; 0: none
	OUT o_origin text,    -- paused: who paused it, and why
	OUT o_also text       -- for each further semaphore: [[slot, fence, declared, expired, version, limit], …]
)
LANGUAGE plpgsql
{settings}
SET enable_sort = off
AS $tickslot$
#variable_conflict use_variable
DECLARE
	v_began CONSTANT timestamptz := clock_timestamp();
	v_until CONSTANT timestamptz := v_began + p_wait * interval '1 millisecond';
	v_slots integer := greatest(p_slots, 1);
	v_window CONSTANT integer := 16;
	v_low integer := floor(random() * ceil(v_slots::float8 / v_window))::integer * v_window;
	v_high integer := least(v_low + v_window, v_slots);
	v_seen record;
	v_leases record;
	v_clock timestamptz;
	v_clock_us bigint;
	v_latest timestamptz;       -- later values were noted while the clock was ahead
	v_over timestamptz;         -- when the delay is over
	v_ended boolean;
	v_locked boolean := false;  -- this transaction has locked the name
	v_skipped boolean := false; -- the ended slots were skipped: other sessions have locked their rows
	v_free integer;
	v_sleep float8 := 0.001;
	v_blocker integer;
	v_looks integer := 0;
	v_also jsonb;
	v_others CONSTANT integer := coalesce(json_array_length(p_also::json), 0);
	v_other record;
	v_held integer;
	v_busy boolean := false;    -- other sessions have locked the rows of all free slots of a further semaphore
	v_slot integer;
	v_fence bigint;
	v_expired boolean;
	v_full text;                -- the semaphore that refuses the request
	v_log text;                 -- the starts of a semaphore with a rate: see package startlog
	v_logs text[];              -- the log of each further semaphore, with this start
	v_records integer;
	v_starts bigint;
	v_last bigint;
	v_bucket bigint;
	v_end bigint;
	v_believed text;            -- the log of v_full if starts in it lie ahead of the clock
BEGIN
	{session}
	IF current_setting('transaction_read_only') = 'on' THEN -- a replica may lag behind
		RAISE EXCEPTION 'nothing can be granted in a read-only transaction' USING ERRCODE = '25006';
	END IF;
	PERFORM set_config('lock_timeout', p_wait::text, true);
	-- If two requests have the same token, the second waits for the first and finds its grant. (If
	-- the hashes of two tokens collide, the second request waits for no reason.)
	PERFORM pg_advisory_xact_lock(hashtextextended('tickslot token ' || p_token, 0));
	-- A later version may use the table in a way that this version would misread: see tableFormat.
	IF (SELECT f.overrides_version FROM {table} AS f WHERE f.resource_name = '' AND f.slot = -1) > 1 THEN
		RAISE EXCEPTION
			'a later version of tickslot uses the table, with format %, and this one knows format 1: update this host',
			(SELECT f.overrides_version FROM {table} AS f WHERE f.resource_name = '' AND f.slot = -1)
				USING ERRCODE = '42000';
	END IF;
	o_slot := 0; o_fence := 0; o_host := ''; o_pid := 0; o_tag := ''; o_since := 0; o_ends := 0;
	o_previous_expired := false; o_version := 0; o_limit := 0; o_origin := '';
	o_also := '[]';
	<<attempts>>
	LOOP
		v_looks := v_looks + 1;
		IF v_looks > 1 AND clock_timestamp() > v_until THEN
			-- The process is known if no other process has locked the row.
			SELECT l.slot, (SELECT k.pid FROM pg_locks AS k WHERE k.locktype = 'transactionid'
				AND k.transactionid = l.xmax AND k.granted LIMIT 1)
			INTO v_free, v_blocker FROM {table} AS l
			WHERE l.resource_name = p_resource AND l.slot BETWEEN 0 AND v_slots - 1 AND l.expires_at <= v_clock
			ORDER BY l.resource_name, l.expires_at LIMIT 1;
			RAISE EXCEPTION 'slot % is free, but another transaction (process %) has had its row locked for % ms',
				coalesce(v_free::text, '?'), coalesce(v_blocker::text, 'unknown'),
				(extract(epoch FROM clock_timestamp() - v_began) * 1000)::bigint
				USING ERRCODE = 'lock_not_available';
		END IF;

		-- 1. read: everything that the decision depends on. Each part fits only one index, because
		-- with old statistics the planner may choose badly.
		SELECT head.slot AS head, head.tick, head.tick_starts, head.tick_schedule, head.asked_schedule, head.asked_at,
			head.host_name AS tick_host,
			head.process_id AS tick_pid, head.process_tag AS tick_tag,
			head.slots, head.succeeded_at, head.overrides_version, head.paused_until, head.resumed_at,
			head.pause_origin, head.slot_limit, head.limit_origin,
			(SELECT mine.slot FROM (SELECT * FROM {table} AS l WHERE l.lock_id = p_token OFFSET 0) AS mine
				WHERE mine.resource_name = p_resource AND mine.slot >= 0 AND mine.expires_at > clock_timestamp()
					LIMIT 1) AS again,
			first.slot AS first, first.expires_at, first.acquired_at, first.host_name, first.process_id,
			first.process_tag,
			(SELECT l.slot FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot BETWEEN 0 AND v_slots - 1
				ORDER BY l.resource_name DESC, l.slot DESC LIMIT 1) AS last,
			-- Each request looks for deleted rows in only one window of slots.
			(SELECT count(*) FROM (SELECT FROM {table} AS l WHERE l.resource_name = p_resource
				AND l.slot BETWEEN v_low AND v_high - 1
				ORDER BY l.resource_name, l.slot LIMIT v_window) AS there) AS present
		INTO v_seen
		FROM (SELECT 1) AS one
		LEFT JOIN {table} AS head ON head.resource_name = p_resource AND head.slot = -1
		LEFT JOIN LATERAL (
			SELECT l.slot, l.expires_at, l.acquired_at, l.host_name, l.process_id, l.process_tag FROM {table} AS l
			WHERE l.resource_name = p_resource AND l.slot BETWEEN 0 AND v_slots - 1
			ORDER BY l.resource_name, l.expires_at LIMIT 1) AS first ON true;
		v_clock := clock_timestamp();
		v_clock_us := extract(epoch FROM v_clock) * 1000000;
		IF p_delay IS NOT NULL THEN -- a tick with a delay has no instant to compare with others
			p_tick := v_clock_us;
			v_seen.tick := NULL;
		END IF;
		-- Ignore values that were noted while the clock was ahead. They would refuse requests until
		-- the clock caught up.
		v_latest := v_clock + p_ahead * interval '1 microsecond';
		IF v_seen.tick > v_clock_us + p_ahead THEN
			v_seen.tick := NULL;
		END IF;
		IF v_seen.asked_at > v_clock_us + p_ahead THEN
			v_seen.asked_schedule := NULL;
		END IF;
		o_declared := coalesce(v_seen.slots, 0);
		o_success := CASE WHEN v_seen.succeeded_at IS NULL OR v_seen.succeeded_at > v_latest THEN 0
			ELSE greatest(1, extract(epoch FROM v_clock - v_seen.succeeded_at) * 1000000) END;

		o_version := coalesce(v_seen.overrides_version, 0);
		o_limit := coalesce(v_seen.slot_limit, 0);

		-- 2. again: the same request, repeated because its reply was lost. The lease is extended
		-- even if it was revoked: the caller trusts it for p_ttl from this request on, and its
		-- first heartbeat reports the revocation.
		IF v_others > 0 THEN
			SELECT count(*) INTO v_held FROM json_array_elements(p_also::json) AS a
			WHERE EXISTS (SELECT 1 FROM {table} AS l WHERE l.lock_id = p_token AND l.resource_name = a ->> 0
				AND l.slot >= 0 AND l.expires_at > clock_timestamp());
			IF v_held <> (CASE WHEN v_seen.again IS NULL THEN 0 ELSE v_others END) THEN
				o_reason := 'ended';
				RETURN;
			END IF;
		END IF;
		IF v_seen.again IS NOT NULL THEN
			BEGIN
				UPDATE {table} AS l SET renewed_at = v_clock, expires_at = v_clock + p_ttl * interval '1 microsecond'
				WHERE l.resource_name = p_resource AND l.slot = v_seen.again AND l.lock_id = p_token
					AND l.expires_at > clock_timestamp()
				RETURNING 'ok', l.slot, l.fence INTO o_reason, o_slot, o_fence;
				IF NOT FOUND THEN
					RAISE SQLSTATE 'TS000';
				END IF;
				v_also := '[]';
				FOR v_other IN SELECT a ->> 0 AS name FROM json_array_elements(coalesce(p_also, '[]')::json) AS a LOOP
					UPDATE {table} AS l SET renewed_at = v_clock,
						expires_at = v_clock + p_ttl * interval '1 microsecond'
					WHERE l.lock_id = p_token AND l.resource_name = v_other.name AND l.slot >= 0
						AND l.expires_at > clock_timestamp()
					RETURNING l.slot, l.fence INTO v_slot, v_fence;
					IF NOT FOUND THEN
						RAISE SQLSTATE 'TS000';
					END IF;
					v_also := v_also || (SELECT jsonb_build_array(jsonb_build_array(v_slot, v_fence,
						coalesce(h.slots, 0), 0, coalesce(h.overrides_version, 0), coalesce(h.slot_limit, 0)))
						FROM (SELECT 1) AS one
						LEFT JOIN {table} AS h ON h.resource_name = v_other.name AND h.slot = -1);
				END LOOP;
				o_also := v_also::text;
				RETURN;
			EXCEPTION WHEN SQLSTATE 'TS000' THEN
				o_slot := 0; o_fence := 0;
				CONTINUE;
			END;
		END IF;

		-- 3. first: a missed tick whose schedule is unknown, or was unknown when the tick came due.
		-- From now on the schedule is known.
		IF p_missed IS NOT NULL AND p_tick <= v_clock_us + p_ahead
			AND (v_seen.tick IS NULL OR coalesce(v_seen.tick_schedule, 0) <> p_schedule)
			AND (v_seen.asked_schedule IS DISTINCT FROM p_schedule OR p_missed <= v_seen.asked_at) THEN
			IF v_seen.asked_schedule IS DISTINCT FROM p_schedule THEN
				IF NOT v_locked THEN
					{lock_names}
					CONTINUE;
				END IF;
				INSERT INTO {table} AS head (resource_name, slot, asked_schedule, asked_at)
				VALUES (p_resource, -1, p_schedule,
					CASE WHEN p_missed > v_clock_us + p_ahead THEN v_clock_us ELSE p_missed END)
				ON CONFLICT (resource_name, slot) DO UPDATE SET asked_schedule = EXCLUDED.asked_schedule,
					asked_at = EXCLUDED.asked_at;
			END IF;
			o_reason := 'tick_first';
			RETURN;
		END IF;

		-- 4. overrides: refuse during a pause or under a limit of 0. If they change the number of
		-- slots, read again.
		IF v_seen.overrides_version IS NOT NULL THEN
			CASE
				WHEN v_seen.paused_until > v_clock THEN
					o_reason := 'paused'; o_origin := coalesce(v_seen.pause_origin, '');
					o_ends := extract(epoch FROM v_seen.paused_until - v_clock) * 1000000;
					RETURN;
				WHEN v_seen.slot_limit = 0 THEN
					o_reason := 'paused'; o_origin := coalesce(v_seen.limit_origin, '');
					RETURN;
				WHEN p_missed < extract(epoch FROM greatest(v_seen.paused_until,
					CASE WHEN v_seen.resumed_at <= v_latest THEN v_seen.resumed_at END)) * 1000000 THEN
					o_reason := 'paused'; o_origin := coalesce(v_seen.pause_origin, '');
					RETURN;
				WHEN v_slots <> coalesce(v_seen.slot_limit, greatest(p_slots, 1)) THEN
					v_slots := coalesce(v_seen.slot_limit, greatest(p_slots, 1));
					v_low := floor(random() * ceil(v_slots::float8 / v_window))::integer * v_window;
					v_high := least(v_low + v_window, v_slots);
					CONTINUE;
				ELSE NULL;
			END CASE;
		END IF;

		-- 5. tick: it is started at most p_max times, and never after a later tick.
		o_reason := CASE
			WHEN p_tick > v_clock_us + p_ahead THEN 'tick_ahead'
			WHEN p_tick < coalesce(v_seen.tick, 0) THEN 'tick_late'
			WHEN p_tick = v_seen.tick AND v_seen.tick_starts >= p_max
				OR p_missed IS NOT NULL AND p_tick <= coalesce(v_seen.tick, 0) THEN 'tick_taken'
		END;
		IF o_reason IS NULL AND p_missed IS NOT NULL THEN -- if a host held a lease then, the tick was not missed
			IF EXISTS (SELECT 1 FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot >= 0
				AND extract(epoch FROM greatest(l.expires_at,
					CASE WHEN l.released_at <= v_latest THEN l.released_at END))
					* 1000000 > p_missed) THEN
				o_reason := 'tick_held';
				v_full := p_resource;
				EXIT attempts;
			END IF;
		END IF;
		IF o_reason = 'tick_taken' THEN
			o_host := coalesce(v_seen.tick_host, ''); o_pid := coalesce(v_seen.tick_pid, 0);
			o_tag := coalesce(v_seen.tick_tag, '');
		END IF;
		IF o_reason IS NOT NULL THEN RETURN; END IF;

		-- 6. slot: one whose lease has ended, a new one, or one whose row is missing.
		IF p_delay IS NOT NULL THEN -- no lease may be held in any slot
			v_seen.slot_limit := 1;
		END IF;
		v_ended := coalesce(v_seen.expires_at <= v_clock, false);
		v_free := CASE
			WHEN v_ended AND NOT v_skipped THEN v_seen.first
			WHEN coalesce(v_seen.last, -1) < v_slots - 1 THEN coalesce(v_seen.last, -1) + 1
		END;
		IF v_free IS NULL AND v_seen.present < v_high - v_low THEN
			v_free := (SELECT min(i) FROM generate_series(v_low, v_high - 1) AS i
				WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot = i));
			CONTINUE WHEN v_free IS NULL; -- the missing row was just inserted again
		END IF;
		IF v_seen.slot_limit IS NOT NULL THEN
			-- The leases of every slot count, because a lowered limit may be exceeded.
			SELECT count(*) OVER () AS held, l.host_name, l.process_id, l.process_tag, l.acquired_at, l.expires_at
				INTO v_leases FROM {table} AS l
			WHERE l.resource_name = p_resource AND l.slot >= 0 AND l.expires_at > v_clock
			ORDER BY l.resource_name, l.expires_at LIMIT 1;
			IF v_leases.held >= v_seen.slot_limit THEN
				v_free := NULL; v_ended := false;
				v_seen.host_name := v_leases.host_name; v_seen.process_id := v_leases.process_id;
				v_seen.process_tag := v_leases.process_tag;
				v_seen.acquired_at := v_leases.acquired_at; v_seen.expires_at := v_leases.expires_at;
			END IF;
		END IF;
		IF v_free IS NULL AND v_ended THEN -- other sessions have locked the rows of all free slots
			PERFORM pg_sleep(v_sleep);
			v_sleep := least(2 * v_sleep, 0.05);
			v_skipped := false;
			CONTINUE;
		END IF;
		IF v_free IS NULL THEN
			o_reason := 'full';
			o_host := coalesce(v_seen.host_name, ''); o_pid := coalesce(v_seen.process_id, 0);
			o_tag := coalesce(v_seen.process_tag, '');
			o_since := extract(epoch FROM v_clock - v_seen.acquired_at) * 1000000;
			o_ends := extract(epoch FROM v_seen.expires_at - v_clock) * 1000000;
			v_full := p_resource;
			EXIT attempts;
		END IF;
		v_ended := v_ended AND NOT v_skipped;

		-- 7. delay: measured from the end of the last lease in any slot.
		IF p_delay IS NOT NULL THEN
			SELECT max(greatest(l.expires_at, CASE WHEN l.released_at <= v_latest THEN l.released_at END))
				+ p_delay * interval '1 microsecond' INTO v_over
			FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot >= 0;
			IF v_over > v_clock THEN
				o_reason := 'tick_early';
				o_ends := ceil(extract(epoch FROM v_over - v_clock) * 1000000);
				RETURN;
			END IF;
		END IF;

		-- 8. shared: the first further semaphore without a free slot refuses the request.
		IF v_others > 0 THEN
			v_logs := '{}';
			FOR v_other IN
				SELECT a.i, a.name, a.rate, a.per, h.starts, coalesce(h.slot_limit, a.size) AS n,
					coalesce(h.slots, 0) AS slots,
					coalesce(h.overrides_version, 0) AS version, coalesce(h.slot_limit, 0) AS slot_limit,
					CASE WHEN h.paused_until > v_clock THEN h.pause_origin
						WHEN h.slot_limit = 0 THEN h.limit_origin END AS origin,
					CASE WHEN h.paused_until > v_clock THEN h.paused_until END AS paused_until,
					held.host_name, held.process_id, held.process_tag, held.acquired_at, held.expires_at, held.held
				FROM (SELECT e.i - 1 AS i, e.v ->> 0 AS name, (e.v ->> 1)::integer AS size,
						(e.v ->> 2)::bigint AS rate, (e.v ->> 3)::bigint AS per
					FROM json_array_elements(p_also::json) WITH ORDINALITY AS e(v, i)) AS a
				LEFT JOIN {table} AS h ON h.resource_name = a.name AND h.slot = -1
				LEFT JOIN LATERAL (
					SELECT l.host_name, l.process_id, l.process_tag, l.acquired_at, l.expires_at,
						count(*) OVER () AS held
					FROM {table} AS l WHERE l.resource_name = a.name AND l.slot >= 0 AND l.expires_at > v_clock
						AND (h.slot_limit IS NOT NULL OR l.slot < a.size)
					ORDER BY l.resource_name, l.expires_at LIMIT 1) AS held ON true
				ORDER BY a.i
			LOOP
				IF v_other.origin IS NOT NULL OR coalesce(v_other.held, 0) >= v_other.n THEN
					o_reason := 'limit_full';
					o_origin := coalesce(v_other.origin, '');
					IF v_other.origin IS NULL THEN
						o_host := coalesce(v_other.host_name, ''); o_pid := coalesce(v_other.process_id, 0);
						o_tag := coalesce(v_other.process_tag, '');
						o_since := extract(epoch FROM v_clock - v_other.acquired_at) * 1000000;
						o_ends := extract(epoch FROM v_other.expires_at - v_clock) * 1000000;
					ELSIF v_other.paused_until IS NOT NULL THEN
						o_ends := extract(epoch FROM v_other.paused_until - v_clock) * 1000000;
					END IF;
					o_also := json_build_array(json_build_array(v_other.i, 0, v_other.slots, 0, v_other.version,
						v_other.slot_limit))::text;
					v_full := v_other.name;
					EXIT attempts;
				END IF;
				v_log := coalesce(v_other.starts, '');
				v_believed := NULL;
				IF v_other.rate > 0 THEN
					v_records := length(v_log) / 26;
					v_starts := 0;
					v_last := nullif(substr(v_log, 26 * v_records - 25, 16), '')::bigint;
					IF v_records > 0 AND v_last > v_clock_us + p_ahead + v_other.per / 60 THEN
						-- These starts were counted while the clock was ahead, so they happened
						-- before now.
						WHILE v_records > 0 AND substr(v_log, 26 * v_records - 25, 16)::bigint > v_clock_us LOOP
							v_starts := v_starts + substr(v_log, 26 * v_records - 9, 10)::bigint;
							v_records := v_records - 1;
						END LOOP;
						v_log := substr(v_log, 1, 26 * v_records) || lpad(v_clock_us::text, 16, '0')
							|| lpad(least(v_starts, 9999999999)::text, 10, '0');
						v_records := v_records + 1;
						v_starts := 0;
						v_last := v_clock_us;
						v_believed := v_log;
					END IF;
					FOR v_record IN REVERSE v_records .. 1 LOOP
						v_end := substr(v_log, 26 * v_record - 25, 16)::bigint;
						EXIT WHEN v_end <= v_clock_us - v_other.per;
						v_starts := v_starts + substr(v_log, 26 * v_record - 9, 10)::bigint;
						IF v_starts >= v_other.rate THEN
							o_reason := 'limit_rate';
							o_ends := v_end + v_other.per - v_clock_us;
							o_also := json_build_array(json_build_array(v_other.i, 0, v_other.slots, 0,
								v_other.version, v_other.slot_limit))::text;
							v_full := v_other.name;
							EXIT attempts;
						END IF;
					END LOOP;
					-- The rate allows this start: count it.
					v_bucket := CASE WHEN v_other.rate > 60 THEN (v_other.per + 59) / 60 ELSE 1 END;
					v_end := v_clock_us - v_clock_us % v_bucket + v_bucket;
					IF v_records > 0 AND v_last >= v_end THEN
						v_log := left(v_log, -10) || lpad((right(v_log, 10)::bigint + 1)::text, 10, '0');
					ELSE
						IF v_records >= 64 THEN
							v_log := substr(v_log, 27, 16) || lpad(least(9999999999,
								substr(v_log, 17, 10)::bigint + substr(v_log, 43, 10)::bigint)::text, 10, '0')
								|| substr(v_log, 53);
						END IF;
						v_log := v_log || lpad(v_end::text, 16, '0') || '0000000001';
					END IF;
				END IF;
				v_logs := v_logs || v_log;
			END LOOP;
		END IF;

		-- 9. grant: a lease of each. The EXCEPTION block is a savepoint: when it fails, its locks
		-- are released, so no session waits for a row that was not granted.
		IF NOT v_locked AND (p_tick IS NOT NULL OR v_others > 0 OR NOT v_ended OR v_seen.slot_limit IS NOT NULL) THEN
			{lock_names}
			CONTINUE;
		END IF;
		BEGIN
			v_also := '[]';
			IF v_others > 0 THEN
				FOR v_other IN
					SELECT a.i, a.rate, a.name, a.size, coalesce(h.slot_limit, a.size) AS n, h.slot AS head, h.slots,
						coalesce(h.overrides_version, 0) AS version, coalesce(h.slot_limit, 0) AS slot_limit
					FROM (SELECT e.i, e.v ->> 0 AS name, (e.v ->> 1)::integer AS size, (e.v ->> 2)::bigint AS rate
						FROM json_array_elements(p_also::json) WITH ORDINALITY AS e(v, i)) AS a
					LEFT JOIN {table} AS h ON h.resource_name = a.name AND h.slot = -1
					ORDER BY a.i
				LOOP
					SELECT l.slot, l.expires_at > 'epoch' INTO v_slot, v_expired FROM {table} AS l
					WHERE l.resource_name = v_other.name AND l.slot BETWEEN 0 AND v_other.n - 1
						AND l.expires_at <= v_clock
					ORDER BY l.resource_name, l.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
					IF FOUND THEN
						UPDATE {table} AS l SET lock_id = p_token, fence = greatest(l.fence + 1, v_clock_us),
							acquired_at = v_clock, renewed_at = v_clock,
							expires_at = v_clock + p_ttl * interval '1 microsecond', released_at = NULL, revoked = NULL,
							host_name = p_host, process_id = p_pid, process_tag = p_tag
						WHERE l.resource_name = v_other.name AND l.slot = v_slot
						RETURNING l.fence INTO v_fence;
					ELSE
						v_expired := false;
						v_slot := (SELECT l.slot + 1 FROM {table} AS l
							WHERE l.resource_name = v_other.name AND l.slot BETWEEN -1 AND v_other.n - 1
							ORDER BY l.resource_name DESC, l.slot DESC LIMIT 1);
						IF v_slot = v_other.n THEN -- only if a row was deleted
							v_slot := (SELECT i FROM generate_series(0, v_other.n - 1) AS i WHERE NOT EXISTS (SELECT 1
								FROM {table} AS l WHERE l.resource_name = v_other.name AND l.slot = i) LIMIT 1);
							v_busy := v_slot IS NULL;
						END IF;
						IF NOT v_busy THEN
							INSERT INTO {table} AS l (resource_name, slot, lock_id, fence, acquired_at, renewed_at,
								expires_at, host_name, process_id, process_tag)
							VALUES (v_other.name, coalesce(v_slot, 0), p_token, v_clock_us, v_clock, v_clock,
								v_clock + p_ttl * interval '1 microsecond', p_host, p_pid, p_tag)
							ON CONFLICT DO NOTHING
							RETURNING l.slot, l.fence INTO v_slot, v_fence;
						END IF;
					END IF;
					IF v_busy OR NOT FOUND THEN
						RAISE SQLSTATE 'TS000';
					END IF;
					IF v_other.head IS NULL THEN
						INSERT INTO {table} AS h (resource_name, slot, slots, starts)
						VALUES (v_other.name, -1, v_other.size, nullif(v_logs[v_other.i], ''))
						ON CONFLICT DO NOTHING;
						IF NOT FOUND AND v_other.rate > 0 THEN
							RAISE SQLSTATE 'TS000';
						END IF;
					ELSIF v_other.rate > 0 THEN
						PERFORM FROM {table} AS h WHERE h.resource_name = v_other.name AND h.slot = -1
							FOR UPDATE SKIP LOCKED;
						IF NOT FOUND THEN -- the start must not go uncounted
							v_busy := true;
							RAISE SQLSTATE 'TS000';
						END IF;
						UPDATE {table} AS h SET slots = v_other.size, starts = v_logs[v_other.i]
							WHERE h.resource_name = v_other.name AND h.slot = -1;
					ELSIF v_other.size IS DISTINCT FROM v_other.slots THEN
						-- If that row is locked, a later grant stores the number of slots.
						PERFORM FROM {table} AS h WHERE h.resource_name = v_other.name AND h.slot = -1
							FOR UPDATE SKIP LOCKED;
						IF FOUND THEN
							UPDATE {table} AS h SET slots = v_other.size
								WHERE h.resource_name = v_other.name AND h.slot = -1;
						END IF;
					END IF;
					v_also := v_also || jsonb_build_array(jsonb_build_array(v_slot, v_fence, coalesce(v_other.slots, 0),
						v_expired::integer, v_other.version, v_other.slot_limit));
				END LOOP;
			END IF;
			IF v_ended THEN
				SELECT l.slot, l.expires_at > 'epoch' INTO v_free, o_previous_expired FROM {table} AS l
				WHERE l.resource_name = p_resource AND l.slot BETWEEN 0 AND v_slots - 1 AND l.expires_at <= v_clock
				ORDER BY l.resource_name, l.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
				v_skipped := NOT FOUND;
				UPDATE {table} AS l SET lock_id = p_token, fence = greatest(l.fence + 1, v_clock_us),
					acquired_at = v_clock, renewed_at = v_clock,
					expires_at = v_clock + p_ttl * interval '1 microsecond', released_at = NULL, revoked = NULL,
					host_name = p_host, process_id = p_pid, process_tag = p_tag
				WHERE l.resource_name = p_resource AND l.slot = v_free
					AND v_seen.overrides_version IS NOT DISTINCT FROM -- no override was set in the meantime
						(SELECT h.overrides_version FROM {table} AS h
							WHERE h.resource_name = p_resource AND h.slot = -1)
					AND (p_delay IS NULL OR greatest(l.expires_at, -- a lease may have begun and ended since
						CASE WHEN l.released_at <= v_latest THEN l.released_at END)
						+ p_delay * interval '1 microsecond' <= v_clock)
				RETURNING l.slot, l.fence INTO o_slot, o_fence;
			ELSE
				INSERT INTO {table} AS l (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at,
					host_name, process_id, process_tag)
				VALUES (p_resource, v_free, p_token, v_clock_us, v_clock, v_clock,
					v_clock + p_ttl * interval '1 microsecond', p_host, p_pid, p_tag)
				ON CONFLICT DO NOTHING
				RETURNING l.slot, l.fence INTO o_slot, o_fence;
			END IF;
			IF NOT FOUND THEN
				RAISE SQLSTATE 'TS000';
			END IF;
		EXCEPTION WHEN SQLSTATE 'TS000' THEN
			o_slot := 0; o_fence := 0; o_previous_expired := false;
			IF v_busy THEN
				PERFORM pg_sleep(v_sleep);
				v_sleep := least(2 * v_sleep, 0.05);
				v_busy := false;
			END IF;
			IF NOT v_locked THEN
				v_skipped := false;
				{lock_names}
			END IF;
			CONTINUE;
		END;

		-- 10. record: count the start of the tick, and store the declared slots.
		IF p_tick IS NULL AND p_slots IS DISTINCT FROM v_seen.slots AND v_seen.head IS NOT NULL THEN
			-- If that row is locked, a later grant stores the number of slots.
			PERFORM FROM {table} AS h WHERE h.resource_name = p_resource AND h.slot = -1 FOR UPDATE SKIP LOCKED;
			IF FOUND THEN
				UPDATE {table} AS h SET slots = p_slots WHERE h.resource_name = p_resource AND h.slot = -1;
			END IF;
		ELSIF p_tick IS NOT NULL OR p_slots IS DISTINCT FROM v_seen.slots THEN
			INSERT INTO {table} AS head (resource_name, slot, tick, tick_starts, tick_schedule, slots, host_name,
				process_id, process_tag)
			VALUES (p_resource, -1, p_tick, 1, p_schedule, p_slots, p_host, p_pid, p_tag)
			ON CONFLICT (resource_name, slot) DO UPDATE SET
				tick = coalesce(p_tick, head.tick),
				tick_starts = CASE WHEN p_tick IS NULL THEN head.tick_starts
					WHEN p_tick = head.tick THEN head.tick_starts + 1 ELSE 1 END,
				tick_schedule = CASE WHEN p_tick IS NULL THEN head.tick_schedule ELSE p_schedule END,
				asked_schedule = CASE WHEN p_tick IS NULL
					OR head.tick_schedule = p_schedule THEN head.asked_schedule END,
				host_name = CASE WHEN p_tick IS NULL THEN head.host_name ELSE p_host END,
				process_id = CASE WHEN p_tick IS NULL THEN head.process_id ELSE p_pid END,
				process_tag = CASE WHEN p_tick IS NULL THEN head.process_tag ELSE p_tag END,
				slots = p_slots;
		END IF;
		IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
			-- A grant must survive a crash of the server and a failover.
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		o_reason := 'ok'; o_also := v_also::text;
		RETURN;
	END LOOP;

	IF v_believed IS NOT NULL THEN
		PERFORM FROM {table} AS h WHERE h.resource_name = v_full AND h.slot = -1 FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			UPDATE {table} AS h SET starts = v_believed
			WHERE h.resource_name = v_full AND h.slot = -1
				AND substr(right(h.starts, 26), 1, 16)::bigint > v_clock_us + p_ahead;
		END IF;
	END IF;

	-- A lease that was renewed while the clock was ahead would last too long. Its holder trusts it
	-- for one TTL from a moment in the past, so ending it one TTL from now is safe. Each refusal
	-- looks at the lease that ends last, and locks its row only if that lease needs to be
	-- shortened.
	SELECT l.slot, l.renewed_at INTO v_leases FROM {table} AS l WHERE l.resource_name = v_full AND l.slot >= 0
	ORDER BY l.resource_name DESC, l.expires_at DESC LIMIT 1;
	IF v_leases.renewed_at > v_latest THEN
		PERFORM FROM {table} AS l WHERE l.resource_name = v_full AND l.slot = v_leases.slot FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			UPDATE {table} AS l SET expires_at = v_clock + (l.expires_at - l.renewed_at), renewed_at = v_clock
			WHERE l.resource_name = v_full AND l.slot = v_leases.slot AND l.renewed_at > v_latest
				AND l.expires_at > v_clock;
		END IF;
	END IF;
END
$tickslot$;

-- name: acquire
SELECT * FROM {acquire}($1::text, $2::integer, $3::text, $4::bigint, $5::bigint, $6::integer, $7::bigint, $8::bigint,
	$9::bigint, $10::text, $11::bigint, $12::text, $13::bigint, $14::text, $15::bigint)
