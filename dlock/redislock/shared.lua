-- Functions for an attempt that takes slots of further semaphores in the same step. Their states
-- are KEYS[2…]. The attempt first reads all semaphores, then chooses a free slot of each, and takes
-- the slots only if every semaphore has one.
local look_shared, extend_shared, certain, choose_shared, take_shared, taken_shared
local rate_over, count_start

if joint then
  -- Returns the further semaphores. sizes: their numbers of slots, separated by blanks. ours:
  -- whether the token holds the slot of the attempt itself. If it does, it must hold a slot of each
  -- further semaphore; otherwise it must hold none.
  function look_shared(sizes, token, mine, ours)
    local others = {}
    for word in string.gmatch(sizes, '%S+') do
      local size, rate, per = string.match(word, '^(%d+)/?(%d*)/?(%d*)$')
      local state = KEYS[#others + 2]
      local known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept', 'slots', 'version', 'until',
        'limit', 'format', 'starts')
      if known.err then error(no_state(state, known.err), 0) end
      check_format(state, known[10])
      local base = base_of(state, false)
      local limit = limit_of(state, known[9])
      local o = {state = state, base = base, index = base .. 'index', tokens = base .. 'tokens', size = size,
        n = limit > 0 and limit or size + 0, limit = limit, new = not known[1], fence = count(known[1]),
        run = known[2], noted = known[2], since = count(known[3]), kept = count(known[5]),
        rate = rate ~= '' and rate + 0, per = rate ~= '' and per + 0, starts = known[11] or '', unrated = not known[11],
        version = int(count(known[7])), paused = count(known[8]), declared = int(count(known[6]))}
      o.info = ' ' .. o.declared .. ' ' .. int(count(known[4])) .. ' ' .. o.version .. ' ' .. int(math.max(0, limit))
      local slot = call('ZSCORE', o.tokens, token)
      local held = slot and get(base .. slot)
      if held and sub(held, 1, #mine) == mine then
        o.held, o.slot, o.fence_text, o.abandoned = held, slot, string.match(held, '"fence":(%d+)') or '0', ' 0'
      end
      if (o.slot ~= nil) ~= (ours or false) then
        error('TICKSLOT of the leases of one request some have ended, and that in ' .. base .. ' has '
          .. (o.slot and 'not' or 'or never began') .. ': release it', 0)
      end
      others[#others + 1] = o
    end
    return others
  end

  -- Extends the leases that a repeated attempt holds.
  function extend_shared(others)
    for _, o in ipairs(others) do
      local failed = renew(o.base .. o.slot, o.held, ttl, told_ttl)
      if failed then error(failed, 0) end
      if call('ZADD', o.index, ends, o.slot) == 1 then call('PEXPIRE', o.index, memory(o.state, o.version)) end
    end
    return taken_shared(others)
  end

  -- Returns a slot that is free according to its key, or nil if there is none. The search begins
  -- with a slot that looks free. It corrects the index.
  function certain(s, slot)
    for _ = 0, s.n do
      if not slot then return nil end
      local key = s.base .. slot
      if not get(key) then return slot end
      local left = call('PTTL', key)
      if call('ZADD', s.index, int(now + (left >= 0 and left + 1 or 1000)), slot) == 1 then
        call('PEXPIRE', s.index, memory(s.state, s.version))
      end
      slot = choose(s)
    end
    error('TICKSLOT index ' .. s.index .. ' is inconsistent: delete it', 0)
  end

  -- The log of starts of a rate, as package startlog keeps it.
  -- The base is given because miniredis otherwise reads digits after a zero as octal:
  -- 0000000010 would be 8.
  local function record(log, i)
    return tonumber(sub(log, 26 * i - 25, 26 * i - 10), 10), tonumber(sub(log, 26 * i - 9, 26 * i), 10)
  end
  local function append(log, last, n) return log .. string.format('%016.0f%010.0f', last, math.min(n, 9999999999)) end

  -- Returns when the rate allows the next start (µs), or nil if it allows one now.
  function rate_over(o)
    local log = o.starts
    if #log % 26 ~= 0 or find(log, '%D') then
      error('TICKSLOT key ' .. o.state .. ' has a malformed log of starts: delete its field starts', 0)
    end
    local n, sum = #log / 26, 0
    if n > 0 and record(log, n) > micros + ahead + o.per / 60 then -- recorded while the clock was ahead
      while n > 0 and record(log, n) > micros do
        local _, starts = record(log, n)
        sum, n = sum + starts, n - 1
      end
      log = append(sub(log, 1, 26 * n), micros, sum)
      call('HSET', o.state, 'starts', log)
      n, sum = n + 1, 0
    end
    o.starts = log
    for i = n, 1, -1 do
      local last, starts = record(log, i)
      if last <= micros - o.per then return nil end
      sum = sum + starts
      if sum >= o.rate then return last + o.per end
    end
  end

  -- Returns the log with one more start at the present time.
  function count_start(o)
    local log, bucket = o.starts, o.rate > 60 and math.ceil(o.per / 60) or 1
    local n, last = #log / 26, micros - micros % bucket + bucket
    local newest, starts = 0, 0
    if n > 0 then newest, starts = record(log, n) end
    if newest >= last then return append(sub(log, 1, -27), newest, starts + 1) end
    if n >= 64 then
      local _, oldest = record(log, 1)
      local second, more = record(log, 2)
      log = append('', second, oldest + more) .. sub(log, 53)
    end
    return append(log, last, 1)
  end

  -- Chooses a free slot of each semaphore, or returns the refusal of the first semaphore that has
  -- none. info is the INFO of the attempt.
  function choose_shared(others, info)
    for i, o in ipairs(others) do
      local about = info .. ' ' .. (i - 1) .. o.info
      if micros < o.paused then
        return 'limit_paused' .. about .. ' ' .. int(o.paused) .. '\n' .. (call('HGET', o.state, 'pause') or '')
      end
      if o.limit == 0 then
        return 'limit_paused' .. about .. ' 0\n' .. (call('HGET', o.state, 'limit_order') or '')
      end
      o.slot = certain(o, choose(o))
      if not o.slot then return 'limit_' .. full(o, about) end
      if o.new then check_form(o.state, ':slot:state') end
      if quarantine > 0 then
        local again_from
        again_from, o.noted = trusted(o.state, o.run, o.since, o.version, o.rate and math.ceil(o.per / 1000))
        if again_from then return 'quarantine' .. info .. ' ' .. int(again_from) end
      end
      local over = o.rate and rate_over(o)
      if over then return 'limit_rate' .. about .. ' ' .. int(over) end
    end
  end

  -- Takes the chosen slots and records the grants: see attempt.lua.
  function take_shared(others, token, mine)
    ends = ends or int(now + ttl)
    for _, o in ipairs(others) do
      local fence = o.fence
      o.fence_text = fence < micros and micros_text or int(fence + 1)
      local value = mine .. ',"fence":' .. o.fence_text .. ',"acquired_at":' .. now_text .. ',' .. holder .. told_ttl
      if not call('SET', o.base .. o.slot, value, 'NX', 'PX', ttl) then
        error('TICKSLOT key ' .. o.base .. o.slot .. ' appeared within a script', 0)
      end
      call('ZADD', o.index, ends, o.slot)
      o.abandoned = call('ZREMRANGEBYSCORE', o.tokens, o.slot, o.slot) > 0 and ' 1' or ' 0'
      call('ZADD', o.tokens, o.slot, token)
      call('PEXPIRE', o.tokens, short_retention)
      call('HSET', o.state, 'fence', o.fence_text)
      if o.rate then call('HSET', o.state, 'starts', count_start(o)) end
      if o.new or o.rate and o.unrated or o.fresh or o.kept > now or now - o.kept > often or o.run ~= o.noted
        or o.declared ~= o.size then
        call('HSET', o.state, 'slots', o.size, 'form', form, 'kept', now_text)
        if o.noted then call('HSET', o.state, 'run', o.noted) end
        enlist(shared, o.state, now, now_text, short_retention)
        forget(o.state, o.version)
        call('PEXPIRE', o.index, memory(o.state, o.version))
      elseif o.version ~= '0' then
        forget(o.state, o.version)
      end
    end
  end

  -- Returns the words about the further semaphores for the answer.
  function taken_shared(others)
    local words = {}
    for i, o in ipairs(others) do words[i] = o.info .. ' ' .. o.slot .. ' ' .. o.fence_text .. o.abandoned end
    return table.concat(words)
  end
end

