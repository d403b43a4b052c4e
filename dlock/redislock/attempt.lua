-- Returns an instant of the state (µs), or 0 if it was written while the clock was ahead.
local function noted_at(state, field)
  local at = count(call('HGET', state, field))
  return at <= micros + ahead and at or 0
end

local function attempt(state, token, slots, claim)
  local limits
  if joint then slots, limits = string.match(slots, '^(%d+) (.+)$') end
  local mutex = slots == '0'
  local n = mutex and 1 or slots + 0 -- slots that may be granted
  local base = base_of(state, mutex)
  local index, tokens = not mutex and base .. 'index', not mutex and base .. 'tokens'
  -- The value of a grant begins with its token, so checking ownership is a comparison of prefixes.
  local mine = '{"token":"' .. token .. '"'

  -- 1. read: the state. The steps that need slots or tokens read those themselves.
  local known -- format is always the last field
  if mutex and claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept', 'released', 'format')
  elseif mutex then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept', 'released',
      'tick', 'starts', 'claimer', 'schedule', 'asked', 'format')
  elseif claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept',
      'slots', 'version', 'until', 'limit', 'format')
  else
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept',
      'slots', 'version', 'until', 'limit', 'tick', 'starts', 'claimer', 'schedule', 'asked', 'format')
  end
  if known.err then
    error(no_state(state, known.err), 0)
  end
  check_format(state, known[#known])
  local fence, run, since, success, kept = known[1] or '0', known[2], known[3] or '0', known[4] or '0', known[5] or '0'
  local declared, version, paused, limit = '0', '0', 0, -1 -- the values for a mutex
  if not mutex then
    declared, version, paused = known[6] or '0', known[7] or '0', count(known[8])
    if known[9] then
      limit = limit_of(state, known[9])
      if limit > 0 then n = limit end
    end
  end
  local override = limit > 0 and int(limit) or '0'
  local info = ' ' .. declared .. ' ' .. success .. ' ' .. version .. ' ' .. override
  -- If another program wrote the values, invalid numbers become 0.
  if not find(fence .. ' ' .. since .. ' ' .. kept .. info, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+$') then
    local function digits(x) return string.match(x, '^%d+$') or '0' end
    fence, since, kept = digits(fence), digits(since), digits(kept)
    info = ' ' .. digits(declared) .. ' ' .. digits(success) .. ' ' .. digits(version) .. ' ' .. override
  end
  fence, since, kept = fence + 0, since + 0, kept + 0

  -- 2. again: the same attempt, repeated because its reply was lost.
  local again -- the attempt's slot, if it was granted one
  if not mutex then
    again = call('ZSCORE', tokens, token)
  elseif known[6] ~= '1' then -- not released since the last grant
    again = ''
  end
  local held = again and get(base .. again)
  local ours = held and sub(held, 1, #mine) == mine
  local others
  if joint then
    if not choose then for_semaphores() end
    others = look_shared(limits, token, mine, ours)
  end
  if ours then
    -- The holder trusts the lease for ttl from the moment of the request, so the lease must last
    -- that long even if it was revoked since. The next heartbeat reports the revocation.
    local failed = renew(base .. again, held, ttl, told_ttl)
    if failed then error(failed, 0) end
    if not mutex then
      ends = ends or int(now + ttl)
      if call('ZADD', index, ends, again) == 1 then call('PEXPIRE', index, memory(state, version)) end
    end
    local fence_held = string.match(held, '"fence":(%d+)') or '0'
    local answer = 'ok' .. info .. ' ' .. (mutex and '0' or again) .. ' ' .. fence_held .. ' 0'
    return joint and answer .. extend_shared(others) or answer
  end

  -- 3. first: a missed tick whose schedule is unknown, or was unknown when the tick came due. From
  -- now on the schedule is known.
  local at = mutex and 7 or 10 -- index of the field tick; starts, claimer, schedule and asked follow
  local tick_text, most, missed, schedule, wanted, delay
  -- A tick that was noted while the clock was ahead must not refuse all ticks before it.
  local tick = count(known[at])
  if tick > micros + ahead then tick = 0 end
  if claim ~= '' then
    tick_text, most, missed, schedule = string.match(claim, '^(-?%d+) (%d+) (-?%d+) (-?%d+)$')
    if not tick_text then
      delay, schedule = string.match(claim, '^after (%d+) (-?%d+)$')
      delay, tick_text, most, missed = delay and delay + 0, delay and micros_text, '1', '0'
    end
    if not tick_text then error('TICKSLOT the claim of a tick is malformed', 0) end
    wanted, missed = tick_text + 0, missed ~= '0' and missed + 0
  end
  if missed and wanted <= micros + ahead and not (tick > 0 and known[at + 3] == schedule) then
    local asked, since = string.match(known[at + 4] or '', '^(-?%d+) (-?%d+)$')
    if asked and since + 0 > micros + ahead then asked = nil end
    if asked ~= schedule and not mutex then
      if not known[1] then check_form(state, ':slot:state') end
      call('HSET', state, 'asked', schedule .. ' ' .. int(missed > micros + ahead and micros or missed),
        'form', form)
      forget(state, version)
    end
    if asked ~= schedule or missed <= since + 0 then return 'tick_first' .. info end
  end

  -- 4. overrides: a pause, or a limit of 0. A tick that came due before a pause ended was not
  -- missed.
  if micros < paused or missed and (missed < paused or missed < noted_at(state, 'resumed')) then
    return 'paused' .. info .. ' ' .. int(paused) .. '\n' .. (call('HGET', state, 'pause') or '')
  end
  if limit == 0 then return 'paused' .. info .. ' 0\n' .. (call('HGET', state, 'limit_order') or '') end

  -- 5. tick: start a scheduled instant at most max times, and never after a later one.
  local starts = 0
  if wanted and not delay then
    if wanted > micros + ahead then return 'tick_ahead' .. info end
    if wanted < tick then return 'tick_late' .. info end
    if wanted == tick then
      starts = count(known[at + 1])
      if missed or starts >= most + 0 then return 'tick_taken' .. info .. '\n' .. (known[at + 2] or '') end
    end
    if missed then
      -- If a lease was held when the tick came due, the tick was not missed. A lease that was not
      -- released stays in the index with its end until its slot is granted again.
      if not mutex and (missed < noted_at(state, 'released')
        or #call('ZRANGEBYSCORE', index, '(' .. int(math.floor(missed / 1000)), '+inf', 'LIMIT', '0', '1') > 0) then
        return 'tick_held' .. info
      end
    end
  end

  -- 6 and 7. slot, delay: the slot is the lowest released one, or an expired one, or a new one, in
  -- this order. A delay counts from the end of the last lease in any slot. While the index
  -- has a lease, no slot is free. If the key of that lease is gone nevertheless, the lease has
  -- ended by now.
  local over, held_until = 0, 0
  if delay then
    if mutex then error('TICKSLOT a mutex has no delay', 0) end
    n, limit = 1, 1
    held_until = (call('ZRANGE', index, '-1', '-1', 'WITHSCORES')[2] or 0) + 0
    local ended = held_until >= 1000000 and (held_until + 1) * 1000 or 0 -- 0: all leases were released
    over = delay + math.max(ended, noted_at(state, 'released'))
    if held_until <= now and micros < over then return 'tick_early' .. info .. ' ' .. int(over) end
  end
  local slot, s -- a slot that looks free
  if mutex then
    if held then return taken(base, info, held) end
    slot = '' -- the key of a mutex is base
  else
    if not choose then for_semaphores() end
    s = {state = state, version = version, base = base, index = index, n = n, limit = limit}
    slot = choose(s)
    if not slot then return full(s, info) end
    if held_until > now then
      call('HSET', state, 'released', micros_text)
      forget(state, version)
      return 'tick_early' .. info .. ' ' .. int(micros + delay)
    end
  end

  -- Check whether other hosts use the other form of the keys.
  if not known[1] then check_form(state, mutex and ':slot:mutex' or ':slot:state') end

  -- Check whether this server can be trusted.
  if quarantine > 0 then
    local again_from
    again_from, run = trusted(state, run, since, version)
    if again_from then return 'quarantine' .. info .. ' ' .. int(again_from) end
  end

  -- 8. shared: write nothing before it is certain that this semaphore and each further one have a
  -- free slot.
  if joint then
    slot = certain(s, slot)
    if not slot then return full(s, info) end
    local no = choose_shared(others, info)
    if no then return no end
    take_shared(others, token, mine)
  end

  -- 9. grant: the lease. The key decides: where it contradicts the index, the script corrects the
  -- index and searches again. Each round rules out one slot, so there are at most n rounds. If the
  -- index was lost, this loop rebuilds it.
  local fence_text = (fence < micros or fence >= 9007199254740992) and micros_text or int(fence + 1)
  local value = mine .. ',"fence":' .. fence_text .. ',"acquired_at":' .. now_text .. ',' .. holder .. told_ttl
  local tries = 0
  local key = base .. slot
  while not call('SET', key, value, 'NX', 'PX', ttl) do
    tries = tries + 1 -- an endless script would block the server
    if tries > n then error('TICKSLOT index ' .. index .. ' is inconsistent: delete it', 0) end
    local value = get(key)
    if mutex then return taken(base, info, value) end -- the mutex is held, but its state does not say so
    local left = call('PTTL', key)
    -- This script never writes a key without an expiry. Look at such a key again in a second.
    if call('ZADD', index, int(now + (left >= 0 and left + 1 or 1000)), slot) == 1 then
      call('PEXPIRE', index, memory(state, version))
    end
    slot = choose(s)
    if not slot then return full(s, info) end
    key = base .. slot
  end
  local abandoned
  if mutex then
    abandoned = known[6] == '0'
  else
    ends = ends or int(now + ttl)
    call('ZADD', index, ends, slot)
    abandoned = call('ZREMRANGEBYSCORE', tokens, slot, slot) > 0 -- a release would have removed the token
    call('ZADD', tokens, slot, token)
    -- Usually empty when nothing is held, but expired leases leave their tokens behind.
    call('PEXPIRE', tokens, wanted and long_retention or short_retention)
  end

  -- 10. record: the grant and the start of the tick. Fields that rarely change are written only
  -- when they change and when the expiry of the state is extended.
  if mutex then
    call('HSET', state, 'fence', fence_text, 'released', '0')
    if wanted then
      call('HSET', state, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder, 'schedule', schedule)
    end
  elseif wanted then
    call('HSET', state, 'fence', fence_text, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder,
      'schedule', schedule)
    if (known[at + 4] or '') ~= '' and known[at + 3] ~= schedule then call('HSET', state, 'asked', '') end
  else
    call('HSET', state, 'fence', fence_text)
  end
  local first_tick = wanted and not known[at]
  if kept > now or now - kept > often or known[2] ~= run or first_tick or not mutex and declared ~= slots then
    call('HSET', state, 'slots', slots, 'form', form, 'kept', now_text)
    if run then call('HSET', state, 'run', run) end
    enlist(shared, state, now, now_text, short_retention)
    forget(state, version)
    if not mutex then call('PEXPIRE', index, memory(state, version)) end
  elseif version ~= '0' then
    forget(state, version)
  end
  if s and s.fresh then call('PEXPIRE', index, memory(state, version)) end
  local answer = 'ok' .. info .. ' ' .. (mutex and '0' or slot) .. ' ' .. fence_text .. (abandoned and ' 1' or ' 0')
  return joint and answer .. taken_shared(others) or answer
end

return each(micros_text, attempts, 8, attempt)
