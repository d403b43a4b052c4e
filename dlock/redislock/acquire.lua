-- Acquire: take one slot, and one start of a tick, in one atomic step. A refusal writes nothing, except what
-- has to be remembered: the first sight of a restarted server, and where the index was wrong.
--
-- KEYS[1] state   hash: what is known of the name. fence, tick, starts, slots, run, ready, form, success (µs: when a grant was last
--                 released as succeeded), claimer (JSON members: whose start of the tick was the last); of a mutex also released: 0 from a
--                 grant to its release; of a semaphore also what people ordered, see order.lua
-- KEYS[2] index   sorted set: slot -> when it ends (ms); a released slot has its own number as score, so that
--                 the lowest released slot comes first. It is a hint. The slot's own key decides.
-- KEYS[3] tokens  sorted set: token -> its slot, so that an attempt that is repeated finds its grant. A release takes the token out
-- ARGV[1] base    key of slot i is base..i; of a mutex, base itself
-- ARGV[2] slots   0: mutex
-- ARGV[3] token
-- ARGV[4] ttl     ms
-- ARGV[5] holder  JSON members to store, readable with redis-cli
-- ARGV[6] tick    µs, or '' for none
-- ARGV[7] max     starts of the tick allowed; 0: as many as there are slots
-- ARGV[8] quarantine  ms; 0: none, the store is embedded
-- ARGV[9] other   the state key in the other form of the keys, or '' where it cannot be reached
-- ARGV[10] idle   ms after which what belongs to an unused name may go
-- ARGV[11] ahead  µs that a tick may lie ahead of the clock
-- ARGV[12] form   of the keys: plain or tagged
-- ARGV[13] missed 1: the tick is claimed as one that nobody was there for
--
-- Returns {'ok', NEWS, slot, fence, 1 if whoever had the slot before did not release it}
--      or {'full' or 'quarantine', NEWS, now ms, end ms, value of the holder}
--      or {'paused', NEWS, µs left or 0, order (JSON)}
--      or {'tick_taken', NEWS, claimer}
--      or {another reason, NEWS}
-- where NEWS is: slots as declared before, µs since the last success or 0, version of the orders or 0, limit that was ordered or 0

local state, index, tokens = KEYS[1], KEYS[2], KEYS[3]
local base, slots, token, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local mutex = slots == 0
local n = mutex and 1 or slots -- slots that may be granted

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- Numbers are written in full: Lua's own conversion gives 1.79e+15. (Not every Lua formats a numeric string.)
local function int(x) return string.format('%.0f', tonumber(x)) end
local function key(slot) return mutex and base or base .. int(slot) end
-- A grant's value begins with its token, so that ownership is a comparison of prefixes.
local mine = '{"token":"' .. token .. '"'
local function is_mine(value) return value and string.sub(value, 1, #mine) == mine end

local function get(slot)
  local value = redis.pcall('GET', key(slot))
  if type(value) == 'table' then
    error('TICKSLOT key ' .. key(slot) .. ' does not hold a lease: ' .. value.err, 0)
  end
  return value
end

local known = redis.pcall('HMGET', state, 'fence', 'tick', 'starts', 'slots', 'run', 'ready', 'success', 'released', 'claimer', 'version', 'until', 'limit')
if known.err then
  return redis.error_reply('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err)
end
-- Whatever stands there, a number is taken as one only where it can be counted on: below 2^53.
local function count(x)
  x = tonumber(x)
  return x and x >= 0 and x < 9007199254740992 and x or 0
end
local fence, tick, starts = count(known[1]), count(known[2]), count(known[3])
local declared, run, ready = known[4] or '0', known[5], count(known[6])
local success = count(known[7]) > 0 and int(math.max(1, micros - count(known[7]))) or '0'

local version, paused, limit = int(count(known[10])), count(known[11]), tonumber(known[12] or '-1')
if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
  return redis.error_reply('TICKSLOT key ' .. state .. ' has a limit that is none: order another')
end
if limit > 0 then n = limit end

-- A name that nobody uses may go after a while, unless something is ordered for it. Versions of this script that know of no orders
-- have it expire all the same, and may have been here.
local function forget()
  if version == '0' then redis.call('PEXPIRE', state, ARGV[10]) else redis.call('PERSIST', state) end
end

-- Every answer tells the news.
local function answer(verdict, ...)
  return {verdict, declared, success, version, int(math.max(0, limit)), ...}
end

-- 1. The same attempt, asked again because its reply was lost.
local again = mutex and '0' or redis.call('ZSCORE', tokens, token)
if again then
  local value = get(again)
  if is_mine(value) then
    local revoked = string.sub(value, #mine + 1, #mine + 11) == ',"revoked":'
    if not revoked then -- its holder learns of that with the next heartbeat
      redis.call('PEXPIRE', key(again), int(ttl))
      if not mutex then redis.call('ZADD', index, int(now + ttl), again) end
    end
    return answer('ok', tonumber(again), string.match(value, '"fence":(%d+)'), 0)
  end
end

-- 2. Orders. What lies before the end of a pause was not missed.
local wanted, missed = tonumber(ARGV[6]), ARGV[13] == '1'
if micros < paused or missed and wanted < paused then
  return answer('paused', int(math.max(0, paused - micros)), redis.call('HGET', state, 'pause') or '')
end
if limit == 0 then return answer('paused', '0', redis.call('HGET', state, 'limit_order') or '') end

-- 3. The tick: a scheduled instant, claimed at most max times, never after a later one.
if wanted then
  if wanted > micros + tonumber(ARGV[11]) then return answer('tick_ahead') end
  if wanted < tick then return answer('tick_late') end
  local most = tonumber(ARGV[7])
  if most == 0 then most = n end
  if wanted == tick and (missed or starts >= most) then return answer('tick_taken', known[9] or '') end
  if missed and tick == 0 then return answer('tick_first') end
end

-- 4. A slot that looks free: the lowest that was released, then those that expired, then new ones.
local gap = 0 -- below it the index misses nothing
local function candidate()
  if mutex then
    if get(0) then return nil end
    return 0
  end
  -- slots are members of the index that could be ours; what else is in there is taken out.
  local function slots_of(members)
    local list = {}
    for i, member in ipairs(members) do
      if string.match(member, '^%d+$') and tonumber(member) < 10000 then
        list[#list + 1] = tonumber(member)
      else
        redis.call('ZREM', index, member)
      end
    end
    return list, #list < #members
  end
  local function lowest(from, to)
    while true do
      local found, cleaned = slots_of(redis.call('ZRANGEBYSCORE', index, from, to, 'LIMIT', 0, 1))
      if not cleaned then return found[1] end
    end
  end
  local low = lowest('-inf', '(1000000')
  if low and low < n then return low end
  while true do
    local expired = lowest('1000000', '(' .. int(now))
    if not expired then break end
    if expired < n then return expired end
    redis.call('ZADD', index, int(expired), int(expired)) -- beyond our N: released, for hosts with a larger one
  end
  -- The index knows 0 … size-1, as far as they were ever used. The next one is new.
  local size = redis.call('ZCARD', index)
  if size < n then
    if not redis.call('ZSCORE', index, size) then return size end
    for slot = gap, n - 1 do -- somebody took members out of the index: put them back
      gap = slot
      if not redis.call('ZSCORE', index, slot) then return slot end
    end
  end
  -- The index says full. Believe it only if the slots that end first are really there: a
  -- key may have been deleted by hand or evicted.
  local first = slots_of(redis.call('ZRANGEBYSCORE', index, int(now), '+inf', 'LIMIT', 0, 8))
  local keys = {}
  for i, slot in ipairs(first) do keys[i] = key(slot) end
  if #keys > 0 then
    local values = redis.call('MGET', unpack(keys))
    for i, slot in ipairs(first) do
      if not values[i] and slot < n then
        get(slot) -- MGET says nil for a key of another type; this says what it is
        return slot
      end
    end
  end
  return nil
end

-- Within a limit that was ordered there is room while fewer than so many are held, in whatever slots: it may have been lowered. Leases that
-- the index has lost are not counted: after it was deleted by hand as many may be held, until they end, as there are leases in the slots above the
-- limit, and the limit.
local function room()
  local function nth() return #redis.call('ZRANGEBYSCORE', index, int(now), '+inf', 'LIMIT', int(n - 1), 1) > 0 end
  if not nth() then return true end
  local first = redis.call('ZRANGEBYSCORE', index, int(now), '+inf', 'LIMIT', 0, 8)
  for _, member in ipairs(first) do -- those that end first may be gone: see candidate
    if not string.match(member, '^%d+$') or tonumber(member) >= 10000 then
      redis.call('ZREM', index, member)
    elseif not get(member) then
      redis.call('ZADD', index, member, member)
    end
  end
  return not nth()
end
local function choose()
  local slot = candidate()
  if slot and limit > 0 and not room() then return nil end
  return slot
end

local slot = choose()
if not slot then
  local value, ends
  if mutex then
    value = get(0)
    ends = now + math.max(0, redis.call('PTTL', base))
  else
    local first = redis.call('ZRANGEBYSCORE', index, int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    value = first[1] and get(first[1])
    ends = tonumber(first[2])
  end
  return answer('full', int(now), int(ends or now), value or '')
end

-- 5. Do other hosts use the other form of the keys? Then they and we would not see each other. (On a Cluster that key is elsewhere,
-- but there the plain form does not work at all: its keys are on different nodes.)
if ARGV[9] ~= '' and not known[1] and (redis.call('HGET', ARGV[9], 'form') or ARGV[12]) ~= ARGV[12] then
  return redis.error_reply('TICKSLOT key ' .. ARGV[9] .. ' shows that other hosts use the other form of the keys: set the same Options.Keys everywhere, or delete that key')
end

-- 6. May this server be believed? One that came back without its data would grant what others still hold.
local quarantine = tonumber(ARGV[8])
if quarantine > 0 then
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then
    return redis.error_reply('TICKSLOT cannot see whether this server has restarted (grant +info, or say Embedded if it is one): ' .. info.err)
  end
  ready = math.min(ready, now + quarantine) -- the clock may have been ahead when that was written
  -- The run that is known is looked for as it stands there, which takes a fraction of the time of the patterns below.
  if not run or not string.find(info, 'run_id:' .. run .. '\r', 1, true) then
    local id, uptime = string.match(info, 'run_id:(%w+)'), tonumber(string.match(info, 'uptime_in_seconds:(-?%d+)'))
    if not id or not uptime then
      return redis.error_reply('TICKSLOT this server does not tell its run_id and uptime, so a restart cannot be seen: say Embedded, and what that means')
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
  if now < ready then return answer('quarantine', int(now), int(ready), '') end
end

-- 7. Take it. The key decides; where it contradicts the index, the index learns, and the search goes on. Each round puts
-- one slot off, so there are at most n; after the loss of the index this is what rebuilds it.
fence = math.max(fence + 1, micros)
local value = mine .. ',"fence":' .. int(fence) .. ',"since":' .. int(now) .. ',' .. ARGV[5] .. '}'
local tries = 0
while not redis.call('SET', key(slot), value, 'NX', 'PX', int(ttl)) do
  tries = tries + 1 -- a script that does not end would stop the server
  if tries > n then error('TICKSLOT index ' .. index .. ' cannot be believed: delete it', 0) end
  get(slot)
  local left = redis.call('PTTL', key(slot))
  -- A key without an end is not ours; look at it again in a second.
  redis.call('ZADD', index, int(now + (left >= 0 and left + 1 or 1000)), int(slot))
  redis.call('PEXPIRE', index, ARGV[10])
  slot = choose()
  if not slot then return answer('full', int(now), int(now), '') end
end
local abandoned
if mutex then
  abandoned = known[8] == '0'
else
  redis.call('ZADD', index, int(now + ttl), int(slot))
  abandoned = redis.call('ZREMRANGEBYSCORE', tokens, int(slot), int(slot)) > 0 -- a release would have taken it out
  redis.call('ZADD', tokens, int(slot), token)
  redis.call('PEXPIRE', index, ARGV[10])
  redis.call('PEXPIRE', tokens, ARGV[10])
end
local changes = {'fence', int(fence), 'slots', int(slots), 'form', ARGV[12]}
if run then changes[7], changes[8] = 'run', run end
if mutex then
  changes[#changes + 1] = 'released'
  changes[#changes + 1] = '0'
end
if wanted then
  changes[#changes + 1] = 'tick'
  changes[#changes + 1] = int(wanted)
  changes[#changes + 1] = 'starts'
  changes[#changes + 1] = int(wanted == tick and starts + 1 or 1)
  changes[#changes + 1] = 'claimer'
  changes[#changes + 1] = ARGV[5]
end
redis.call('HSET', state, unpack(changes))
forget()
return answer('ok', slot, int(fence), abandoned and 1 or 0)
