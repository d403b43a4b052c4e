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
-- Returns {now µs, answer of each attempt …}, an answer being words with a blank between any two, and behind a line break a text, if there is one:
--   ok NEWS slot fence ABANDONED, which is 1 if whoever had the slot before did not release it
--   full NEWS and when the first lease ends (ms); text: the value of its key
--   quarantine NEWS and when it ends (ms)
--   paused NEWS and when that ends (µs) or 0; text: the order (JSON)
--   tick_taken NEWS; text: the claimer
--   another reason NEWS
--   error; text: what is wrong with this name
-- where NEWS is: slots as declared before, when the last success was (µs) or 0, version of the orders or 0, limit that was ordered or 0

-- Every other call of every host waits while this runs. Each command takes about a microsecond, INFO ten; to read or write a field of a hash half of
-- one. To format a number takes as long as a command does, and it is formatted wherever it is put in a text or is an argument of a command. So numbers
-- that are only passed on stay the texts they come as, and no function is made within an attempt, which costs half a command.
local call, find, sub = redis.call, string.find, string.sub
local quarantine, idle, form, ttl, holder = ARGV[1] + 0, ARGV[2], ARGV[4], ARGV[6], ARGV[7]
local day = idle / 40
local time = call('TIME')
local micros_text = time[1] .. sub('00000' .. time[2], -6)
local now_text = sub(micros_text, 1, -4)
local micros, now = micros_text + 0, now_text + 0
-- Found out when first needed: when a lease from now on ends (ms), what the server tells of itself, and its run.
local ends, told, this_run

-- Numbers are written in full: Lua's own conversion gives 1.79e+15.
local function int(x) return string.format('%.0f', x) end
-- Whatever stands there, a number is taken as one only where it can be counted on: below 2^53.
local function count(x)
  x = x and tonumber(x)
  return x and x >= 0 and x < 9007199254740992 and x or 0
end
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    error('TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err, 0)
  end
  return value
end

-- The answer when a mutex is held, by whose key has that value.
local function taken(key, news, value)
  return 'full' .. news .. ' ' .. int(now + math.max(0, call('PTTL', key))) .. '\n' .. (value or '')
end

-- A name that nobody uses may go after a while, unless something is ordered for it. Versions of this script that know of no orders
-- have it expire all the same, and may have been here.
local function forget(state, version)
  if version ~= '0' then
    call('PERSIST', state)
  else
    call('PEXPIRE', state, idle)
  end
end

-- For semaphores, made when the first is there. Slots are texts. What is known in a search is in one table:
--   base, index, n, limit   of the semaphore
--   gap              below it the index misses nothing
--   fresh            there is no index yet
--   soonest, value   the slot whose lease ends first, and its value, once the index was found to be full
local choose, full
local function for_semaphores()
  local before = '(' .. now_text
  local function slot_of(member) -- a number, or nil: something else stands in the index
    local slot = (member == '0' or find(member, '^[1-9]%d*$')) and member + 0
    return slot and slot < 10000 and slot or nil
  end
  -- A member of the index that is no slot is taken out.
  local function lowest(index, from, to)
    while true do
      local found = call('ZRANGEBYSCORE', index, from, to, 'LIMIT', '0', '1')[1]
      local slot = found and slot_of(found)
      if slot or not found then return found, slot end
      call('ZREM', index, found)
    end
  end
  local function search(s)
    local index, n = s.index, s.n
    local found, slot = lowest(index, '-inf', before)
    if found and slot < n then return found end
    while found do
      found, slot = lowest(index, '1000000', before)
      if not found then break end
      if slot < n then return found end
      call('ZADD', index, found, found) -- beyond our N: released, for hosts with a larger one
    end
    -- The index knows 0 … size-1, as far as they were ever used. The next one is new.
    local size = call('ZCARD', index)
    s.fresh = size == 0
    if size < n then
      local new = int(size)
      if s.fresh or not call('ZSCORE', index, new) then return new end
      for i = s.gap or 0, n - 1 do -- somebody took members out of the index: put them back
        s.gap, new = i, int(i)
        if not call('ZSCORE', index, new) then return new end
      end
    end
    -- The index says full. Believe it only if the slots that end first are really there: a
    -- key may have been deleted by hand or evicted.
    local soon = call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')
    local keys = {}
    for i = 1, #soon do keys[i] = s.base .. soon[i] end
    local values = #soon > 0 and call('MGET', unpack(keys))
    for i = 1, #soon do
      if values[i] then
        if not s.value then s.soonest, s.value = soon[i], values[i] end
      else
        local slot = slot_of(soon[i])
        if not slot then
          call('ZREM', index, soon[i])
        elseif slot < n then
          get(keys[i]) -- MGET says nil for a key of another type; this says what it is
          return soon[i]
        end
      end
    end
    return nil
  end
  -- Within a limit that was ordered there is room while fewer than so many are held, in whatever slots: it may have been lowered. Leases that
  -- the index has lost are not counted: after it was deleted by hand as many may be held, until they end, as there are leases in the slots above the
  -- limit, and the limit.
  local function room(s)
    local index, last = s.index, int(s.n - 1)
    local function nth() return call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', last, '1')[1] end
    if not nth() then return true end
    for _, member in ipairs(call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')) do
      if not slot_of(member) then -- those that end first may be gone: see search
        call('ZREM', index, member)
      elseif not get(s.base .. member) then
        call('ZADD', index, member, member)
      end
    end
    return not nth()
  end
  function choose(s)
    local slot = search(s)
    if slot and s.limit > 0 and not room(s) then return nil end
    return slot
  end
  function full(s, news)
    local slot, value = s.soonest, s.value
    if not slot then
      slot = call('ZRANGEBYSCORE', s.index, now_text, '+inf', 'LIMIT', '0', '1')[1]
      value = slot and get(s.base .. slot)
    end
    return 'full' .. news .. ' ' .. (slot and call('ZSCORE', s.index, slot) or now_text) .. '\n' .. (value or '')
  end
end

local function attempt(state, token, slots, claim)
  local mutex = slots == '0'
  local n = mutex and 1 or slots + 0 -- slots that may be granted
  local base = sub(state, 1, mutex and -#':slot:mutex' - 1 or -#'state' - 1)
  local index, tokens = not mutex and base .. 'index', not mutex and base .. 'tokens'
  -- A grant's value begins with its token, so that ownership is a comparison of prefixes.
  local mine = '{"token":"' .. token .. '"'

  local known
  if mutex and claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'ready', 'success', 'kept', 'released')
  elseif mutex then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'ready', 'success', 'kept', 'released', 'tick', 'starts', 'claimer')
  elseif claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'ready', 'success', 'kept', 'slots', 'version', 'until', 'limit')
  else
    known = redis.pcall('HMGET', state, 'fence', 'run', 'ready', 'success', 'kept', 'slots', 'version', 'until', 'limit', 'tick', 'starts', 'claimer')
  end
  if known.err then
    error('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err, 0)
  end
  local fence, run, ready, success, kept = known[1] or '0', known[2], known[3] or '0', known[4] or '0', known[5] or '0'
  local declared, version, paused, limit = '0', '0', 0, -1 -- which is what they are of a mutex
  if not mutex then
    declared, version, paused = known[6] or '0', known[7] or '0', count(known[8])
    if known[9] then
      limit = tonumber(known[9])
      if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
        error('TICKSLOT key ' .. state .. ' has a limit that is none: order another', 0)
      end
      if limit > 0 then n = limit end
    end
  end
  local ordered = limit > 0 and int(limit) or '0'
  local news = ' ' .. declared .. ' ' .. success .. ' ' .. version .. ' ' .. ordered
  if not find(fence .. ' ' .. ready .. ' ' .. kept .. news, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+$') then -- somebody else wrote there
    local function digits(x) return string.match(x, '^%d+$') or '0' end
    fence, ready, kept = digits(fence), digits(ready), digits(kept)
    news = ' ' .. digits(declared) .. ' ' .. digits(success) .. ' ' .. digits(version) .. ' ' .. ordered
  end
  fence, ready, kept = fence + 0, ready + 0, kept + 0

  -- 1. The same attempt, asked again because its reply was lost.
  local again -- its slot, perhaps
  if not mutex then
    again = call('ZSCORE', tokens, token)
  elseif known[6] ~= '1' then -- not released since it was last granted
    again = ''
  end
  local held = again and get(base .. again)
  if held and sub(held, 1, #mine) == mine then
    -- Its holder trusts it for ttl from when he asked, so it has to last for that long, also if it was revoked meanwhile. His next heartbeat tells him.
    call('PEXPIRE', base .. again, ttl)
    if not mutex then
      ends = ends or int(now + ttl)
      call('ZADD', index, ends, again)
      call('PEXPIRE', index, idle)
    end
    return 'ok' .. news .. ' ' .. (mutex and '0' or again) .. ' ' .. (string.match(held, '"fence":(%d+)') or '0') .. ' 0'
  end

  -- 2. Orders. What lies before the end of a pause was not missed.
  local tick_text, most, missed, wanted
  if claim ~= '' then
    tick_text, most, missed = string.match(claim, '^(-?%d+) (%d+) (%d)$')
    if not tick_text then error('TICKSLOT the claim of a tick makes no sense', 0) end
    wanted, missed = tick_text + 0, missed == '1'
  end
  if micros < paused or missed and wanted < paused then
    return 'paused' .. news .. ' ' .. int(paused) .. '\n' .. (call('HGET', state, 'pause') or '')
  end
  if limit == 0 then return 'paused' .. news .. ' 0\n' .. (call('HGET', state, 'limit_order') or '') end

  -- 3. The tick: a scheduled instant, claimed at most max times, never after a later one.
  local starts = 0
  if wanted then
    local at = mutex and 7 or 10 -- where tick, starts and claimer stand
    local tick = count(known[at])
    if wanted > micros + ARGV[3] then return 'tick_ahead' .. news end
    if wanted < tick then return 'tick_late' .. news end
    if wanted == tick then
      starts, most = count(known[at + 1]), most + 0
      if missed or starts >= (most > 0 and most or n) then return 'tick_taken' .. news .. '\n' .. (known[at + 2] or '') end
    end
    if missed and tick == 0 then return 'tick_first' .. news end
  end

  -- 4. A slot that looks free: the lowest that was released, then those that expired, then new ones.
  local slot, s
  if mutex then
    if held then return taken(base, news, held) end
    slot = '' -- its key is base
  else
    if not choose then for_semaphores() end
    s = {base = base, index = index, n = n, limit = limit}
    slot = choose(s)
    if not slot then return full(s, news) end
  end

  -- 5. Do other hosts use the other form of the keys? Then they and we would not see each other. (On a Cluster that key is elsewhere,
  -- but there the plain form does not work at all: its keys are on different nodes.)
  if not known[1] and ARGV[5] == '1' then
    local suffix = mutex and ':slot:mutex' or ':slot:state'
    local name = sub(state, 1, -#suffix - 1)
    local other = (form == 'plain' and '{' .. name .. '}' or sub(name, 2, -2)) .. suffix
    if (call('HGET', other, 'form') or form) ~= form then
      error('TICKSLOT key ' .. other .. ' shows that other hosts use the other form of the keys: set the same Options.Keys everywhere, or delete that key', 0)
    end
  end

  -- 6. May this server be believed? One that came back without its data would grant what others still hold.
  if quarantine > 0 then
    told = told or redis.pcall('INFO', 'server')
    if type(told) == 'table' then
      error('TICKSLOT cannot see whether this server has restarted (grant +info, or say Embedded if it is one): ' .. told.err, 0)
    end
    -- The run that is known is looked for as it stands there, which takes a fraction of the time of the patterns below.
    if run and run ~= this_run and find(told, 'run_id:' .. run .. '\r', 1, true) then this_run = run end
    if not run or run ~= this_run then
      local id, uptime = string.match(told, 'run_id:(%w+)'), tonumber(string.match(told, 'uptime_in_seconds:(-?%d+)'))
      if not id or not uptime then
        error('TICKSLOT this server does not tell its run_id and uptime, so a restart cannot be seen: say Embedded, and what that means', 0)
      end
      if run and run ~= id or not run and uptime < 0 then
        -- A restart, or another server took over. Or its clock was set back to before its start, so nobody knows how long it has been up.
        -- Everything granted before ends within the quarantine.
        run, ready = id, now + quarantine
        call('HSET', state, 'run', run, 'ready', int(ready))
        forget(state, version)
      elseif not run then
        -- The uptime is the difference of two whole seconds: it may say almost one too many.
        uptime = math.max(0, uptime - 1) * 1000
        if uptime < quarantine then ready = now + quarantine - uptime end
        run = id
      end
    end
    -- What is told is no longer than that. The clock may have been ahead when ready was written; it is waited for all the same, as nobody knows
    -- which quarantine other hosts declare. But it is one name's affair, and to ask again does no harm.
    if now < ready and ready < 9007199254740992 then return 'quarantine' .. news .. ' ' .. int(math.min(ready, now + quarantine)) end
  end

  -- 7. Take it. The key decides; where it contradicts the index, the index learns, and the search goes on. Each round puts
  -- one slot off, so there are at most n; after the loss of the index this is what rebuilds it.
  local fence_text = (fence < micros or fence >= 9007199254740992) and micros_text or int(fence + 1)
  local value = mine .. ',"fence":' .. fence_text .. ',"since":' .. now_text .. ',' .. holder .. '}'
  local tries = 0
  local key = base .. slot
  while not call('SET', key, value, 'NX', 'PX', ttl) do
    tries = tries + 1 -- a script that does not end would stop the server
    if tries > n then error('TICKSLOT index ' .. index .. ' cannot be believed: delete it', 0) end
    local value = get(key)
    if mutex then return taken(base, news, value) end -- by somebody who did not say so in the state
    local left = call('PTTL', key)
    -- A key without an end is not ours; look at it again in a second.
    call('ZADD', index, int(now + (left >= 0 and left + 1 or 1000)), slot)
    call('PEXPIRE', index, idle)
    slot = choose(s)
    if not slot then return full(s, news) end
    key = base .. slot
  end
  local abandoned
  if mutex then
    abandoned = known[6] == '0'
  else
    ends = ends or int(now + ttl)
    call('ZADD', index, ends, slot)
    abandoned = call('ZREMRANGEBYSCORE', tokens, slot, slot) > 0 -- a release would have taken it out
    call('ZADD', tokens, slot, token)
    call('PEXPIRE', tokens, idle) -- it comes and goes with what is held
  end

  -- 8. Remember what it was. What seldom changes is written only then, and once a day, when the end of the state is put off.
  if mutex then
    call('HSET', state, 'fence', fence_text, 'released', '0')
    if wanted then call('HSET', state, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder) end
  elseif wanted then
    call('HSET', state, 'fence', fence_text, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder)
  else
    call('HSET', state, 'fence', fence_text)
  end
  if kept > now or now - kept > day or known[2] ~= run or not mutex and declared ~= slots then
    call('HSET', state, 'slots', slots, 'form', form, 'kept', now_text)
    if run then call('HSET', state, 'run', run) end
    forget(state, version)
    if not mutex then call('PEXPIRE', index, idle) end
  elseif version ~= '0' then
    forget(state, version)
  end
  if s and s.fresh then call('PEXPIRE', index, idle) end
  return 'ok' .. news .. ' ' .. (mutex and '0' or slot) .. ' ' .. fence_text .. (abandoned and ' 1' or ' 0')
end

local answers = {micros_text}
for i = 1, #KEYS do
  local fine, answer = pcall(attempt, KEYS[i], ARGV[3 * i + 5], ARGV[3 * i + 6], ARGV[3 * i + 7])
  if not fine then
    local why = type(answer) == 'table' and answer.err or tostring(answer)
    -- What is wrong with one is its own affair. But a replica has to say what it is itself, or the driver would keep the connection.
    if string.find(why, 'READONLY', 1, true) then return redis.error_reply(why) end
    answer = 'error\n' .. why
  end
  answers[i + 1] = answer
end
return answers
