-- Acquire: for each attempt take one slot, and one start of a tick, in one atomic step. A refusal
-- writes nothing, except what must be remembered: that a restarted server was seen, and corrections
-- of the index.
--
-- The keys of a name:
--   state   hash: fence, tick, starts, slots, run (master_replid of the server that granted
--           last), form, success (µs: when a grant was last released as succeeded), claimer (JSON
--           members: who started the tick last), kept (ms: when the expiry of the state was last
--           extended), schedule (of the tick), released (mutex: 0 from a grant to its release, then
--           1; semaphore: when a grant was last released, µs); of a semaphore also overrides, see
--           update.lua.
--           A version that stores what this one would misread must write format, a number: 2. This
--           version then grants nothing of that name, and writes nothing
--   index   sorted set: slot -> when it ends (ms). The score of a released slot is its own number,
--           so the lowest released slot comes first. A hint: the slot's own key decides.
--   tokens  sorted set: token -> its slot, so that a repeated attempt finds its grant. A release
--           removes the token
--   base..i of slot i; of a mutex, base itself: the lease
-- and one key that all names with a prefix share, so that a restart is waited for once and not
-- again for each name:
--   note    hash: run (master_replid), since (ms: that run began then, or before). On a Cluster no
--           key can be reached by every script, so these two are in the state of each name
--
-- KEYS[i] state of the name of the i-th attempt, from which the other keys are derived. On a
--         Cluster there is one attempt only, because others could be on different nodes
-- ARGV[1] quarantine  ms; 0: none: the server is embedded, or restarts cannot be detected
-- ARGV[2] idle    ms after which an unused name with ticks or overrides may be forgotten
-- ARGV[3] brief   ms after which any other may; at least four times as long as a lease
-- ARGV[4] ahead   µs that a tick may lie ahead of the clock
-- ARGV[5] form    of the keys: plain or tagged   ARGV[6] note, see above; '': the state
-- ARGV[7] ttl     ms   ARGV[8] holder: JSON members to store, readable with redis-cli
-- ARGV[9] epoch   of the failover that made this server the master, after a slash; '' without
--                 Sentinel
-- ARGV[10…] of each attempt: token; slots, 0: mutex; '' or the tick: its instant (µs), allowed
--          starts, when it came due if it is claimed as missed (µs), else 0, and its schedule
--
-- Returns {now µs, answer of each attempt …}. An answer is words separated by blanks, optionally
-- followed by a line break and a text:
--   ok INFO slot fence ABANDONED, which is 1 if the slot's previous holder did not release it
--   full INFO and when the first lease ends (ms); text: the value of its key
--   quarantine INFO and when it ends (ms)
--   paused INFO and when that ends (µs) or 0; text: the origin (JSON)
--   tick_taken INFO; text: the claimer
--   another reason INFO
--   error; text: what is wrong with this name
-- where INFO is: slots as declared before, when the last success was (µs) or 0, version of the
-- overrides or 0, limit of the override or 0

-- Every other call of every host waits while this runs. A command takes about a microsecond, INFO
-- ten, reading or writing a field of a hash half of one. Formatting a number takes as long as a
-- command, and happens wherever a number becomes part of a text or an argument of a command.
-- Therefore numbers that are only passed on stay the texts that they arrive as, and no function is
-- created within an attempt, which costs half a command.
local call, find, sub = redis.call, string.find, string.sub
local quarantine, idle, brief, ahead, form = ARGV[1] + 0, ARGV[2], ARGV[3], ARGV[4] + 0, ARGV[5]
local note, ttl, holder, epoch = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local often = brief / 4
local time = redis.pcall('TIME')
if time.err then
  return redis.error_reply('TICKSLOT SETUP scripts may not call TIME, by which leases and ticks are judged: '
    .. 'grant +time in the ACL, or use another service if this one never allows it\t' .. time.err)
end
local micros_text = time[1] .. sub('00000' .. time[2], -6)
local now_text = sub(micros_text, 1, -4)
local micros, now = micros_text + 0, now_text + 0
-- Determined when first needed: when a lease from now on ends (ms), the server's INFO replication,
-- and its run.
local ends, told, this_run

local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    error(no_lease(key, value.err), 0)
  end
  return value
end

-- The answer when a mutex is held; key has that value.
local function taken(key, info, value)
  return 'full' .. info .. ' ' .. int(now + math.max(0, call('PTTL', key))) .. '\n' .. (value or '')
end

-- How long an unused name is remembered. A name with ticks may belong to a monthly timer.
local function memory(state, version)
  return (version ~= '0' or call('HEXISTS', state, 'tick') == 1) and idle or brief
end

-- Lets an unused name expire, unless it has overrides. PERSIST is needed because a version of this
-- script that does not know overrides may have set an expiry.
local function forget(state, version)
  if version ~= '0' then
    call('PERSIST', state)
  else
    call('PEXPIRE', state, memory(state, version))
  end
end

local function untold()
  error('TICKSLOT SETUP this server does not tell that it is a master, and its master_replid '
    .. '(INFO replication), so a restart or a failover cannot be seen: see docs/redis.md', 0)
end
-- The server's run is its master_replid: no other server ever was a master with that id, and it
-- changes with each start and each promotion, also of the same process. (The run_id does not change
-- in a failover and one back.) The epoch of Sentinel is appended, because Sentinel knows failovers
-- that this server does not: it was cut off while another server was the master, and was made the
-- master again before it learned of the other one.
local function ask_server()
  told = redis.pcall('INFO', 'replication')
  if type(told) == 'table' then
    error('TICKSLOT SETUP scripts may not call INFO, without which a restart or a failover cannot be seen: '
      .. 'grant +info in the ACL, or see docs/redis.md if this service never allows it (NoQuarantine)\t'
      .. told.err, 0)
  end
  if not find(told, '\nrole:master\r', 1, true) then
    -- A writable replica has the run of its master.
    if find(told, '\nrole:slave\r', 1, true) then
      error('READONLY this server is a replica, which grants nothing', 0)
    end
    untold()
  end
end

-- Returns when the process began (ms), or later: the uptime is the difference of two whole seconds,
-- and may be almost one too large. If the clock was set back to before the start, the start is
-- unknown.
local function started()
  local server = redis.pcall('INFO', 'server')
  local uptime = type(server) == 'string' and tonumber(string.match(server, 'uptime_in_seconds:(-?%d+)'))
  if not uptime then
    error('TICKSLOT SETUP this server does not tell its uptime_in_seconds (INFO server), so a restart '
      .. 'cannot be seen: see docs/redis.md', 0)
  end
  return uptime > 0 and now - (uptime - 1) * 1000 or now
end

-- Returns when this run began (ms), or later; what other runs granted has ended a quarantine after
-- that. run and since are what key has noted. The first script that sees a run notes it.
local function began(key, run, since)
  local replid = string.match(told, '\nmaster_replid:(%w+)')
  this_run = this_run or replid and replid .. epoch
  if not this_run then untold() end
  since = count(since)
  if run == this_run and since <= now then return since end
  -- the noted epoch; the first one, if none was noted
  local before = run and sub(run, 41) or epoch ~= '' and '/0' or ''
  if run == this_run then
    since = now -- the clock was ahead when that was noted
  elseif key == note and find(told, '\nsecond_repl_offset:-1\r', 1, true) and before == epoch then
    since = started() -- it has been the only master since its start
  elseif key ~= note and not run then
    return started() -- the name is unknown, and on a Cluster no other key can be read
  else
    since = now
  end
  call('HSET', key, 'run', this_run, 'since', int(since))
  return since
end
local note_began -- determined when first needed

-- For semaphores; created with the first one. Slots are texts. A search keeps its state in one
-- table:
--   base, index, n, limit   of the semaphore
--   gap              below it the index has every slot
--   fresh            there is no index yet
--   soonest, value   once the index was found to be full, the slot that ends first, and its value
local choose, full
local function for_semaphores()
  local before = '(' .. now_text
  local function slot_of(member) -- a number, or nil for any other text in the index
    local slot = (member == '0' or find(member, '^[1-9]%d*$')) and member + 0
    return slot and slot < 10000 and slot or nil
  end
  -- Removes members of the index that are not slots.
  local function lowest(index, from, to)
    while true do
      local found = call('ZRANGEBYSCORE', index, from, to, 'LIMIT', '0', '1')[1]
      local slot = found and slot_of(found)
      if slot or not found then return found, slot end
      call('ZREM', index, found)
    end
  end
  -- Returns the first slot that the index lacks because someone removed members from it.
  local function missing(s)
    for i = s.gap or 0, s.n - 1 do
      s.gap = i
      if not call('ZSCORE', s.index, int(i)) then return int(i) end
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
      call('ZADD', index, found, found) -- beyond our N: mark it released for hosts with a larger N
    end
    -- The index has 0 … size-1, as far as they were ever used. The next slot is new.
    local size = call('ZCARD', index)
    s.fresh = size == 0
    if size < n then
      local new = int(size)
      if s.fresh or not call('ZSCORE', index, new) then return new end
      return missing(s)
    end
    -- The index says full. That is true only if the keys of the slots that end first exist: a key
    -- may have been deleted by hand or evicted.
    local soon = call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')
    local keys = {}
    for i = 1, #soon do keys[i] = s.base .. soon[i] end
    local values = #soon > 0 and call('MGET', unpack(keys))
    local above = false -- whether one of them is beyond our N
    for i = 1, #soon do
      local slot = slot_of(soon[i])
      above = above or slot and slot >= n
      if values[i] then
        if not s.value then s.soonest, s.value = soon[i], values[i] end
      else
        if not slot then
          call('ZREM', index, soon[i])
        elseif slot < n then
          get(keys[i]) -- MGET returns nil for a key of another type; this raises its error
          return soon[i]
        end
      end
    end
    -- It is full if it has all of our slots, and they end later. It may lack one, and have another
    -- beyond our N instead.
    local held = #soon
    if held == 8 and n > 8 then held = call('ZCOUNT', index, now_text, '+inf') end
    if above or held < n then return missing(s) end
    return nil
  end
  -- Under the limit of an override there is room while fewer leases than that are held, in any
  -- slots, because the limit may have been lowered. Leases that the index has lost are not counted:
  -- if it was deleted by hand, the leases in the slots above the limit may be held in addition to
  -- the limit, until they end.
  local function room(s)
    local index, last = s.index, int(s.n - 1)
    local function nth() return call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', last, '1')[1] end
    if not nth() then return true end
    for _, member in ipairs(call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')) do
      if not slot_of(member) then -- the keys of those that end first may be gone: see search
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
  function full(s, info)
    local slot, value = s.soonest, s.value
    if not slot then
      slot = call('ZRANGEBYSCORE', s.index, now_text, '+inf', 'LIMIT', '0', '1')[1]
      value = slot and get(s.base .. slot)
    end
    return 'full' .. info .. ' ' .. (slot and call('ZSCORE', s.index, slot) or now_text) .. '\n' .. (value or '')
  end
end

local function attempt(state, token, slots, claim)
  local mutex = slots == '0'
  local n = mutex and 1 or slots + 0 -- slots that may be granted
  local base = base_of(state, mutex)
  local index, tokens = not mutex and base .. 'index', not mutex and base .. 'tokens'
  -- The value of a grant begins with its token, so ownership is a comparison of prefixes.
  local mine = '{"token":"' .. token .. '"'

  local known -- format is always the last
  if mutex and claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept', 'released', 'format')
  elseif mutex then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept', 'released',
      'tick', 'starts', 'claimer', 'format')
  elseif claim == '' then
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept',
      'slots', 'version', 'until', 'limit', 'format')
  else
    known = redis.pcall('HMGET', state, 'fence', 'run', 'since', 'success', 'kept',
      'slots', 'version', 'until', 'limit', 'tick', 'starts', 'claimer', 'format')
  end
  if known.err then
    error(no_state(state, known.err), 0)
  end
  if known[#known] and count(known[#known]) ~= 1 then
    error('TICKSLOT a later version of tickslot keeps key ' .. state .. ', in format ' .. known[#known]
      .. ', and this one knows format 1: update this host', 0)
  end
  local fence, run, since, success, kept = known[1] or '0', known[2], known[3] or '0', known[4] or '0', known[5] or '0'
  local declared, version, paused, limit = '0', '0', 0, -1 -- the values for a mutex
  if not mutex then
    declared, version, paused = known[6] or '0', known[7] or '0', count(known[8])
    if known[9] then
      limit = tonumber(known[9])
      if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
        error('TICKSLOT key ' .. state .. ' has an invalid limit: set another', 0)
      end
      if limit > 0 then n = limit end
    end
  end
  local override = limit > 0 and int(limit) or '0'
  local info = ' ' .. declared .. ' ' .. success .. ' ' .. version .. ' ' .. override
  -- not written by this script
  if not find(fence .. ' ' .. since .. ' ' .. kept .. info, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+$') then
    local function digits(x) return string.match(x, '^%d+$') or '0' end
    fence, since, kept = digits(fence), digits(since), digits(kept)
    info = ' ' .. digits(declared) .. ' ' .. digits(success) .. ' ' .. digits(version) .. ' ' .. override
  end
  fence, since, kept = fence + 0, since + 0, kept + 0

  -- 1. The same attempt, repeated because its reply was lost.
  local again -- its slot, if it was granted
  if not mutex then
    again = call('ZSCORE', tokens, token)
  elseif known[6] ~= '1' then -- not released since it was last granted
    again = ''
  end
  local held = again and get(base .. again)
  if held and sub(held, 1, #mine) == mine then
    -- Its holder trusts it for ttl from the time of asking, so it must last that long, even if it
    -- was revoked meanwhile. The next heartbeat reports the revocation.
    call('PEXPIRE', base .. again, ttl)
    if not mutex then
      ends = ends or int(now + ttl)
      if call('ZADD', index, ends, again) == 1 then call('PEXPIRE', index, memory(state, version)) end
    end
    local fence_held = string.match(held, '"fence":(%d+)') or '0'
    return 'ok' .. info .. ' ' .. (mutex and '0' or again) .. ' ' .. fence_held .. ' 0'
  end

  -- 2. Overrides. A tick that came due before the end of a pause was not missed.
  local tick_text, most, missed, schedule, wanted
  if claim ~= '' then
    tick_text, most, missed, schedule = string.match(claim, '^(-?%d+) (%d+) (-?%d+) (-?%d+)$')
    if not tick_text then error('TICKSLOT the claim of a tick is malformed', 0) end
    wanted, missed = tick_text + 0, missed ~= '0' and missed + 0
  end
  if micros < paused or missed and missed < paused then
    return 'paused' .. info .. ' ' .. int(paused) .. '\n' .. (call('HGET', state, 'pause') or '')
  end
  if limit == 0 then return 'paused' .. info .. ' 0\n' .. (call('HGET', state, 'limit_order') or '') end

  -- 3. The tick: a scheduled instant, claimed at most max times, and never after a later one.
  local starts = 0
  if wanted then
    local at = mutex and 7 or 10 -- index of tick, then starts and claimer
    local tick = count(known[at])
    -- claimed while the clock was ahead: must not refuse everything until then
    if tick > micros + ahead then tick = 0 end
    if wanted > micros + ahead then return 'tick_ahead' .. info end
    if wanted < tick then return 'tick_late' .. info end
    if wanted == tick then
      starts = count(known[at + 1])
      if missed or starts >= most + 0 then return 'tick_taken' .. info .. '\n' .. (known[at + 2] or '') end
    end
    if missed then
      if tick == 0 or (call('HGET', state, 'schedule') or '0') ~= schedule then return 'tick_first' .. info end
      -- The tick was not missed if a lease was held when it came due. Leases that were not released
      -- stay in the index with their end until their slot is granted again.
      if not mutex and (missed < count(call('HGET', state, 'released'))
        or #call('ZRANGEBYSCORE', index, '(' .. int(math.floor(missed / 1000)), '+inf', 'LIMIT', '0', '1') > 0) then
        return 'tick_held' .. info
      end
    end
  end

  -- 4. A slot that looks free: the lowest released one, then expired ones, then new ones.
  local slot, s
  if mutex then
    if held then return taken(base, info, held) end
    slot = '' -- its key is base
  else
    if not choose then for_semaphores() end
    s = {base = base, index = index, n = n, limit = limit}
    slot = choose(s)
    if not slot then return full(s, info) end
  end

  -- 5. Do other hosts use the other form of the keys? They and we would not see each other's
  -- leases. For the tagged form an error means that the other key is on another node of a Cluster
  -- or not permitted, and is ignored. For the plain form it is an error, because its own keys would
  -- be on different nodes.
  if not known[1] then
    local suffix = mutex and ':slot:mutex' or ':slot:state'
    local name = sub(state, 1, -#suffix - 1)
    local other = (form == 'plain' and '{' .. name .. '}' or sub(name, 2, -2)) .. suffix
    local theirs = redis.pcall('HGET', other, 'form')
    if type(theirs) == 'table' and form == 'plain' then error(theirs.err, 0) end
    if type(theirs) == 'string' and theirs ~= form then
      error(other_form(other), 0)
    end
  end

  -- 6. Can this server be trusted? A server that came back without its data, or took over, would
  -- grant what others still hold.
  if quarantine > 0 then
    if not told then ask_server() end
    -- Searching for the known run as plain text takes a fraction of the time of a pattern.
    if run and run ~= this_run and find(told, '\nmaster_replid:' .. sub(run, 1, 40) .. '\r', 1, true)
      and sub(run, 41) == epoch then
      this_run = run
    end
    if run ~= this_run or since > 0 and note == '' then
      local from
      if note == '' then
        from = began(state, run, since)
        if run and run ~= this_run then forget(state, version) end
      else
        if not note_began then
          local noted = redis.pcall('HMGET', note, 'run', 'since')
          if noted.err then
            error('TICKSLOT key ' .. note .. ' does not hold when this server began:\t' .. noted.err, 0)
          end
          note_began = began(note, noted[1], noted[2])
        end
        from = note_began
      end
      if now < from + quarantine then return 'quarantine' .. info .. ' ' .. int(from + quarantine) end
      run = this_run
    end
  end

  -- 7. Take it. The key decides: where it contradicts the index, the index is corrected and the
  -- search goes on. Each round rules out one slot, so there are at most n rounds. After the loss of
  -- the index this rebuilds it.
  local fence_text = (fence < micros or fence >= 9007199254740992) and micros_text or int(fence + 1)
  local value = mine .. ',"fence":' .. fence_text .. ',"since":' .. now_text .. ',' .. holder .. '}'
  local tries = 0
  local key = base .. slot
  while not call('SET', key, value, 'NX', 'PX', ttl) do
    tries = tries + 1 -- an endless script would block the server
    if tries > n then error('TICKSLOT index ' .. index .. ' is inconsistent: delete it', 0) end
    local value = get(key)
    if mutex then return taken(base, info, value) end -- the state did not say that it is held
    local left = call('PTTL', key)
    -- A key without an expiry is not ours; look at it again in a second.
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
    abandoned = call('ZREMRANGEBYSCORE', tokens, slot, slot) > 0 -- a release would have removed it
    call('ZADD', tokens, slot, token)
    -- Usually empty when nothing is held, but expired leases leave their tokens.
    call('PEXPIRE', tokens, wanted and idle or brief)
  end

  -- 8. Record the grant. What rarely changes is written only when it does, and when the expiry of
  -- the state is extended.
  if mutex then
    call('HSET', state, 'fence', fence_text, 'released', '0')
    if wanted then
      call('HSET', state, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder, 'schedule', schedule)
    end
  elseif wanted then
    call('HSET', state, 'fence', fence_text, 'tick', tick_text, 'starts', int(starts + 1), 'claimer', holder,
      'schedule', schedule)
  else
    call('HSET', state, 'fence', fence_text)
  end
  local first_tick = wanted and not known[mutex and 7 or 10]
  if kept > now or now - kept > often or known[2] ~= run or first_tick or not mutex and declared ~= slots then
    call('HSET', state, 'slots', slots, 'form', form, 'kept', now_text)
    if run then call('HSET', state, 'run', run) end
    forget(state, version)
    if not mutex then call('PEXPIRE', index, memory(state, version)) end
  elseif version ~= '0' then
    forget(state, version)
  end
  if s and s.fresh then call('PEXPIRE', index, memory(state, version)) end
  return 'ok' .. info .. ' ' .. (mutex and '0' or slot) .. ' ' .. fence_text .. (abandoned and ' 1' or ' 0')
end

return each(micros_text, #KEYS, 7, attempt)
