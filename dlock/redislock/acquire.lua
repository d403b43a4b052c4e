-- Acquire: for each attempt take one slot, and one start of a tick, in one atomic step. A refusal writes nothing, except what
-- has to be remembered: the first sight of a restarted server, and where the index was wrong.
--
-- The keys of a name:
--   state   hash: what is known of the name. fence, tick, starts, slots, run, ready, form, success (µs: when a grant was last released as
--           succeeded), claimer (JSON members: whose start of the tick was the last), kept (ms: when the end of the state was last put off);
--           of a mutex also released: 0 from a grant to its release; of a semaphore also what people ordered, see order.lua
--   index   sorted set: slot -> when it ends (ms); a released slot has its own number as score, so that the lowest released slot comes first.
--           It is a hint. The slot's own key decides.
--   tokens  sorted set: token -> its slot, so that an attempt that is repeated finds its grant. A release takes the token out
--   base..i of slot i; of a mutex, base itself: the lease
--
-- KEYS[i] state of the name of the i-th attempt, from which the other keys follow. On a Cluster there is one attempt, or they would be on different nodes
-- ARGV[1] quarantine  ms; 0: none, the store is embedded
-- ARGV[2] idle    ms after which what belongs to an unused name may go
-- ARGV[3] ahead   µs that a tick may lie ahead of the clock
-- ARGV[4] form    of the keys: plain or tagged   ARGV[5] 1: the state in the other form can be reached
-- ARGV[6] ttl     ms   ARGV[7] holder: JSON members to store, readable with redis-cli
-- ARGV[8…] of each attempt: token; slots, 0: mutex; '' or the tick: its instant (µs), starts of it that are allowed (0: as many as there are
--          slots), and 1 if it is claimed as one that nobody was there for, else 0
--
-- Returns {now µs, answer of each attempt …}, an answer being words with a blank between any two, or {words, text}:
--   ok NEWS slot fence ABANDONED, which is 1 if whoever had the slot before did not release it
--   full NEWS and when the first lease ends (ms); text: the value of its key
--   quarantine NEWS and when it ends (ms)
--   paused NEWS and when that ends (µs) or 0; text: the order (JSON)
--   tick_taken NEWS; text: the claimer
--   another reason NEWS
--   error; text: what is wrong with this name
-- where NEWS is: slots as declared before, when the last success was (µs) or 0, version of the orders or 0, limit that was ordered or 0

-- Every other call of every host waits while this runs, and each command takes about a microsecond, INFO three, to format a number nearly one.
local form, ttl, holder = ARGV[4], ARGV[6], ARGV[7]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local micros_text = time[1] .. string.sub('00000' .. time[2], -6)
local now_text = string.sub(micros_text, 1, -4)

-- Numbers are written in full: Lua's own conversion gives 1.79e+15. (Not every Lua formats a numeric string.)
local function int(x) return string.format('%.0f', tonumber(x)) end
-- Whatever stands there, a number is taken as one only where it can be counted on: below 2^53.
local function count(x)
  x = tonumber(x)
  return x and x >= 0 and x < 9007199254740992 and x or 0
end
local function slot_of(member) -- nil: something else stands in the index
  local slot = (member == '0' or string.find(member, '^[1-9]%d*$')) and tonumber(member)
  return slot and slot < 10000 and slot or nil
end

-- What follows is the same for all attempts, and is found out when the first needs it.
local ends
local function lease_ends()
  ends = ends or int(now + ttl)
  return ends
end
local told
local function info()
  told = told or redis.pcall('INFO', 'server')
  if type(told) == 'table' then
    error('TICKSLOT cannot see whether this server has restarted (grant +info, or say Embedded if it is one): ' .. told.err, 0)
  end
  return told
end

local function attempt(state, token, slots, claim)
  local mutex = slots == '0'
  local n = mutex and 1 or tonumber(slots) -- slots that may be granted
  local suffix = mutex and ':slot:mutex' or ':slot:state'
  local name = string.sub(state, 1, -#suffix - 1)
  local base = mutex and name or name .. ':slot:'
  local index, tokens = base .. 'index', base .. 'tokens'
  local function key(slot) return mutex and base or base .. slot end
  -- A grant's value begins with its token, so that ownership is a comparison of prefixes.
  local mine = '{"token":"' .. token .. '"'
  local function get(slot)
    local value = redis.pcall('GET', key(slot))
    if type(value) == 'table' then
      error('TICKSLOT key ' .. key(slot) .. ' does not hold a lease: ' .. value.err, 0)
    end
    return value
  end

  local fields = mutex and {'fence', 'slots', 'run', 'ready', 'success', 'kept', 'released'}
    or {'fence', 'slots', 'run', 'ready', 'success', 'kept', 'version', 'until', 'limit'}
  local tick_at = #fields + 1
  if claim ~= '' then fields[tick_at], fields[tick_at + 1], fields[tick_at + 2] = 'tick', 'starts', 'claimer' end
  local known = redis.pcall('HMGET', state, unpack(fields))
  if known.err then
    error('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err, 0)
  end
  local fence, run, ready = count(known[1]), known[3], count(known[4])
  local declared, success, version, paused, limit = known[2] or '0', known[5] or '0', '0', 0, -1
  if not mutex then
    version, paused = known[7] or '0', count(known[8])
    if known[9] then
      limit = tonumber(known[9])
      if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
        error('TICKSLOT key ' .. state .. ' has a limit that is none: order another', 0)
      end
      if limit > 0 then n = limit end
    end
  end
  local news = declared .. ' ' .. success .. ' ' .. version
  if not string.find(news, '^%d+ %d+ %d+$') then -- somebody else wrote there
    local function digits(x) return string.match(x, '^%d+$') or '0' end
    news = digits(declared) .. ' ' .. digits(success) .. ' ' .. digits(version)
  end
  news = ' ' .. news .. ' ' .. math.max(0, limit)

  -- A name that nobody uses may go after a while, unless something is ordered for it. Versions of this script that know of no orders
  -- have it expire all the same, and may have been here.
  local function forget()
    if version ~= '0' then
      redis.call('PERSIST', state)
    else
      redis.call('PEXPIRE', state, ARGV[2])
    end
  end

  -- 1. The same attempt, asked again because its reply was lost.
  local again = mutex and '0' or redis.call('ZSCORE', tokens, token)
  local held = again and get(again)
  if held and string.sub(held, 1, #mine) == mine then
    local revoked = string.sub(held, #mine + 1, #mine + 11) == ',"revoked":'
    if not revoked then -- its holder learns of that with the next heartbeat
      redis.call('PEXPIRE', key(again), ttl)
      if not mutex then
      redis.call('ZADD', index, lease_ends(), again)
      redis.call('PEXPIRE', index, ARGV[2])
    end
    end
    return 'ok' .. news .. ' ' .. again .. ' ' .. (string.match(held, '"fence":(%d+)') or '0') .. ' 0'
  end

  -- 2. Orders. What lies before the end of a pause was not missed.
  local wanted, most, missed
  if claim ~= '' then
    wanted, most, missed = string.match(claim, '^(-?%d+) (%d+) (%d)$')
    wanted, most, missed = tonumber(wanted), tonumber(most), missed == '1'
    if not wanted then error('TICKSLOT the claim of a tick makes no sense', 0) end
  end
  if micros < paused or missed and wanted < paused then
    return {'paused' .. news .. ' ' .. int(paused), redis.call('HGET', state, 'pause') or ''}
  end
  if limit == 0 then return {'paused' .. news .. ' 0', redis.call('HGET', state, 'limit_order') or ''} end

  -- 3. The tick: a scheduled instant, claimed at most max times, never after a later one.
  local starts = 0
  if wanted then
    local tick = count(known[tick_at])
    if wanted > micros + ARGV[3] then return 'tick_ahead' .. news end
    if wanted < tick then return 'tick_late' .. news end
    if wanted == tick then starts = count(known[tick_at + 1]) end
    if wanted == tick and (missed or starts >= (most > 0 and most or n)) then return {'tick_taken' .. news, known[tick_at + 2] or ''} end
    if missed and tick == 0 then return 'tick_first' .. news end
  end

  -- 4. A slot that looks free: the lowest that was released, then those that expired, then new ones.
  local first, first_ends -- the lease that ends first, once the index was found to be full
  local gap = 0 -- below it the index misses nothing
  local fresh -- there is no index yet
  local function choose()
    if mutex then return not get(0) and 0 or nil end
    local function search()
      -- A member of the index that is no slot is taken out.
      local function lowest(from, to)
        while true do
          local found = redis.call('ZRANGEBYSCORE', index, from, to, 'LIMIT', 0, 1)[1]
          local slot = found and slot_of(found)
          if slot or not found then return slot end
          redis.call('ZREM', index, found)
        end
      end
      local low = lowest('-inf', '(1000000')
      if low and low < n then return low end
      while true do
        local expired = lowest('1000000', '(' .. now_text)
        if not expired then break end
        if expired < n then return expired end
        redis.call('ZADD', index, expired, expired) -- beyond our N: released, for hosts with a larger one
      end
      -- The index knows 0 … size-1, as far as they were ever used. The next one is new.
      local size = redis.call('ZCARD', index)
      fresh = size == 0
      if size < n then
        if not redis.call('ZSCORE', index, size) then return size end
        for slot = gap, n - 1 do -- somebody took members out of the index: put them back
          gap = slot
          if not redis.call('ZSCORE', index, slot) then return slot end
        end
      end
      -- The index says full. Believe it only if the slots that end first are really there: a
      -- key may have been deleted by hand or evicted.
      local soon = redis.call('ZRANGEBYSCORE', index, now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 8)
      local list, keys = {}, {}
      for i = 1, #soon, 2 do
        local slot = slot_of(soon[i])
        if slot then
          list[#list + 1], keys[#keys + 1] = slot, key(slot)
          first_ends = first_ends or soon[i + 1]
        else
          redis.call('ZREM', index, soon[i])
        end
      end
      if #keys > 0 then
        local values = redis.call('MGET', unpack(keys))
        for i, slot in ipairs(list) do
          if not values[i] and slot < n then
            get(slot) -- MGET says nil for a key of another type; this says what it is
            return slot
          end
        end
        first = values[1]
      end
      return nil
    end

    -- Within a limit that was ordered there is room while fewer than so many are held, in whatever slots: it may have been lowered. Leases that
    -- the index has lost are not counted: after it was deleted by hand as many may be held, until they end, as there are leases in the slots above the
    -- limit, and the limit.
    local function room()
      local function nth() return #redis.call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', int(n - 1), 1) > 0 end
      if not nth() then return true end
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', 0, 8)) do
        if not slot_of(member) then -- those that end first may be gone: see search
          redis.call('ZREM', index, member)
        elseif not get(member) then
          redis.call('ZADD', index, member, member)
        end
      end
      return not nth()
    end
    local slot = search()
    if slot and limit > 0 and not room() then return nil end
    return slot
  end
  local function full()
    if mutex then
      first = get(0)
      first_ends = int(now + math.max(0, redis.call('PTTL', base)))
    elseif not first_ends then
      local found = redis.call('ZRANGEBYSCORE', index, now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      first, first_ends = found[1] and get(found[1]), found[2]
    end
    return {'full' .. news .. ' ' .. (first_ends or now_text), first or ''}
  end

  local slot
  if mutex then
    slot = not held and 0 or nil
  else
    slot = choose()
  end
  if not slot then return full() end

  -- 5. Do other hosts use the other form of the keys? Then they and we would not see each other. (On a Cluster that key is elsewhere,
  -- but there the plain form does not work at all: its keys are on different nodes.)
  if ARGV[5] == '1' and not known[1] then
    local other = (form == 'plain' and '{' .. name .. '}' or string.sub(name, 2, -2)) .. suffix
    if (redis.call('HGET', other, 'form') or form) ~= form then
      error('TICKSLOT key ' .. other .. ' shows that other hosts use the other form of the keys: set the same Options.Keys everywhere, or delete that key', 0)
    end
  end

  -- 6. May this server be believed? One that came back without its data would grant what others still hold.
  local quarantine = tonumber(ARGV[1])
  if quarantine > 0 then
    ready = math.min(ready, now + quarantine) -- the clock may have been ahead when that was written
    -- The run that is known is looked for as it stands there, which takes a fraction of the time of the patterns below.
    if not run or not string.find(info(), 'run_id:' .. run .. '\r', 1, true) then
      local id, uptime = string.match(info(), 'run_id:(%w+)'), tonumber(string.match(info(), 'uptime_in_seconds:(-?%d+)'))
      if not id or not uptime then
        error('TICKSLOT this server does not tell its run_id and uptime, so a restart cannot be seen: say Embedded, and what that means', 0)
      end
      if run and run ~= id or not run and uptime < 0 then
        -- A restart, or another server took over. Or its clock was set back to before its start, so nobody knows how long it has been up.
        -- Everything granted before ends within the quarantine.
        run, ready = id, now + quarantine
        redis.call('HSET', state, 'run', run, 'ready', int(ready))
        forget()
      elseif not run then
        -- The uptime is the difference of two whole seconds: it may say almost one too many.
        uptime = math.max(0, uptime - 1) * 1000
        if uptime < quarantine then ready = now + quarantine - uptime end
        run = id
      end
    end
    if now < ready then return 'quarantine' .. news .. ' ' .. int(ready) end
  end

  -- 7. Take it. The key decides; where it contradicts the index, the index learns, and the search goes on. Each round puts
  -- one slot off, so there are at most n; after the loss of the index this is what rebuilds it.
  local fence_text = fence < micros and micros_text or int(fence + 1)
  local value = mine .. ',"fence":' .. fence_text .. ',"since":' .. now_text .. ',' .. holder .. '}'
  local tries = 0
  while not redis.call('SET', key(slot), value, 'NX', 'PX', ttl) do
    tries = tries + 1 -- a script that does not end would stop the server
    if tries > n then error('TICKSLOT index ' .. index .. ' cannot be believed: delete it', 0) end
    get(slot)
    local left = redis.call('PTTL', key(slot))
    -- A key without an end is not ours; look at it again in a second.
    redis.call('ZADD', index, int(now + (left >= 0 and left + 1 or 1000)), slot)
    redis.call('PEXPIRE', index, ARGV[2])
    slot = choose()
    if not slot then return full() end
  end
  local abandoned
  if mutex then
    abandoned = known[7] == '0'
  else
    redis.call('ZADD', index, lease_ends(), slot)
    abandoned = redis.call('ZREMRANGEBYSCORE', tokens, slot, slot) > 0 -- a release would have taken it out
    redis.call('ZADD', tokens, slot, token)
    redis.call('PEXPIRE', tokens, ARGV[2]) -- it comes and goes with what is held
  end
  -- What stands there already is not written again.
  local changes = {'fence', fence_text}
  local function change(field, from, to)
    if from == to then return end
    changes[#changes + 1] = field
    changes[#changes + 1] = to
  end
  change('slots', known[2], slots)
  if run then change('run', known[3], run) end
  if not known[1] then change('form', false, form) end
  if mutex then change('released', known[7], '0') end
  if wanted then
    change('tick', known[tick_at], int(wanted))
    change('starts', known[tick_at + 1], int(starts + 1))
    change('claimer', known[tick_at + 2], holder)
  end
  local kept = count(known[6])
  local stale = kept > now or now - kept > ARGV[2] / 40 -- to put the end off once a day is enough
  if stale then change('kept', known[6], now_text) end
  redis.call('HSET', state, unpack(changes))
  if stale or version ~= '0' then forget() end
  if not mutex and (stale or fresh) then redis.call('PEXPIRE', index, ARGV[2]) end
  return 'ok' .. news .. ' ' .. slot .. ' ' .. fence_text .. ' ' .. (abandoned and 1 or 0)
end

local answers = {micros_text}
for i = 1, #KEYS do
  local fine, answer = pcall(attempt, KEYS[i], ARGV[3 * i + 5], ARGV[3 * i + 6], ARGV[3 * i + 7])
  if not fine then
    local why = type(answer) == 'table' and answer.err or tostring(answer)
    -- What is wrong with one is its own affair. But a replica has to say what it is itself, or the driver would keep the connection.
    if string.find(why, 'READONLY', 1, true) then return redis.error_reply(why) end
    answer = {'error', why}
  end
  answers[i + 1] = answer
end
return answers
