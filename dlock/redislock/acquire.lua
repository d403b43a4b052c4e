-- Acquire: for each attempt, takes one slot and one start of a tick in one atomic step. A refusal
-- writes only what must be remembered: that the server was seen to have restarted, and corrections
-- of the index.
--
-- The keys of a name:
--   state   hash: fence, tick, starts, slots, run (master_replid of the server that granted
--           last), form, success (µs: when a grant was last released as succeeded), claimer (JSON
--           members: the last host to start the tick), kept (ms: when this script last extended
--           the expiry of the state and noted the name: see enlist.lua), schedule (of the tick),
--           asked (semaphore: a schedule that was requested before a tick of it was claimed, and
--           since when, µs), released (mutex: 0 from a grant to its release, then 1; semaphore:
--           when a grant was last released, µs). The state of a semaphore also has overrides (see
--           update.lua) and starts (those that count towards a rate: see package startlog).
--           If a later version stores anything that this version would misread, it must set the
--           field format to 2. This version then grants and writes nothing under that name
--   index   sorted set: slot -> when its lease ends (ms). The score of a released slot is its own
--           number, so the lowest released slot comes first. The index is a hint: the key of the
--           slot decides
--   tokens  sorted set: token -> its slot, so that a repeated attempt finds its grant. A release
--           removes the token
--   base..i lease of slot i. The lease of a mutex has the key base. The value is JSON: token,
--           revoked (optional), fence, acquired_at (ms), holder, and ttl (ms: set by the grant or
--           the last extension)
--   base..'released:'..i; of a mutex base..':slot:released': the value until the release, without
--           the token. It expires soon, and is ignored once the slot is granted again
-- All names with a prefix share one more key, so that the quarantine after a restart is served once
-- and not again for each name:
--   note    hash: run (master_replid), since (ms: no earlier than the beginning of that run). On a
--           Cluster, no single key is in reach of every script, so the state of each name has
--           these two fields
--
-- KEYS[i] state of the name of the i-th attempt. The other keys are derived from it. On a Cluster
--         there is only one attempt, because others could be on different nodes. An attempt that
--         takes slots of further semaphores is also the only one; their states follow its own
-- ARGV[1] quarantine  ms; 0: none, because the server is embedded or restarts cannot be detected
-- ARGV[2] long_retention   ms after which an unused name with ticks or overrides may be forgotten
-- ARGV[3] short_retention  ms after which any other name may; at least four lease times
-- ARGV[4] ahead   µs that a tick may lie ahead of the clock
-- ARGV[5] form    of the keys: plain or tagged   ARGV[6] note, see above; '': use the state
-- ARGV[7] ttl     ms   ARGV[8] holder: JSON members to store, readable with redis-cli
-- ARGV[9] epoch   of the failover that made this server the master, after a slash; '' without
--                 Sentinel
-- ARGV[10] shared see enlist.lua; '': no names are noted
-- ARGV[11…] three values for each attempt:
--   token
--   slots: 0 for a mutex. The slots of further semaphores follow, separated by blanks. One with a
--          rate is written as slots/rate/per (µs)
--   claim: '' or the tick: its instant (µs), allowed starts, when it came due if it is claimed as
--          missed (µs), otherwise 0, and its schedule. A tick with a delay is written as: after,
--          the delay (µs), and its schedule
--
-- Returns {now µs, answer for each attempt …}. An answer consists of words separated by blanks,
-- optionally followed by a line break and a text:
--   ok INFO slot fence ABANDONED. ABANDONED is 1 if the previous holder of the slot did not release
--      it. The same five words follow for each further semaphore
--   full INFO and when the first lease ends (ms); text: the value of its key
--   quarantine INFO and when it ends (ms)
--   paused INFO and when the pause ends (µs) or 0; text: the origin (JSON)
--   tick_taken INFO; text: the claimer
--   limit_full INFO, the index of the further semaphore (from 0), its INFO, and when its first
--      lease ends (ms); text: the value of its key
--   limit_rate INFO, the same index and INFO, and when the rate allows the next start (µs)
--   limit_paused INFO, the same index and INFO, and when the pause ends (µs) or 0; text: the origin
--   tick_early INFO and when the delay is over (µs)
--   another reason INFO
--   error; text: what is wrong with this name
-- INFO is: slots as declared before, when the last success was (µs) or 0, version of the overrides
-- or 0, limit of the override or 0

-- While this script runs, every other call of every host waits. A command takes about 1 µs, INFO 10
-- µs, and reading or writing a field of a hash 0.5 µs. Formatting a number costs as much as a
-- command and happens wherever a number becomes part of a text or an argument of a command. So
-- numbers that are only passed on stay in the text form in which they arrived. No function is
-- created within an attempt, because that costs half a command.
local call, find, sub = redis.call, string.find, string.sub
local quarantine, long_retention, short_retention = ARGV[1] + 0, ARGV[2], ARGV[3]
local ahead, form = ARGV[4] + 0, ARGV[5]
local note, ttl, holder, epoch, shared = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local told_ttl = ',"ttl":' .. ttl .. '}'
local often = short_retention / 4
local attempts = (#ARGV - 10) / 3
local joint = #KEYS > attempts -- there are further semaphores
local time = redis.pcall('TIME')
if time.err then
  return redis.error_reply('TICKSLOT SETUP scripts may not call TIME, by which leases and ticks are judged: '
    .. 'grant +time in the ACL, or use another service if this one never allows it\t' .. time.err)
end
local micros_text = time[1] .. sub('00000' .. time[2], -6)
local now_text = sub(micros_text, 1, -4)
local micros, now = micros_text + 0, now_text + 0
-- Determined on first use: when a lease granted now ends (ms), the server's INFO replication, and
-- the server's run.
local ends, told, this_run

local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    error(no_lease(key, value.err), 0)
  end
  return value
end

-- Returns the answer when a mutex is held; value is the content of key. See shorten.
local function taken(key, info, value)
  local left, own = call('PTTL', key), string.match(value or '', '"ttl":(%d+)')
  if own and left > own + 0 then
    left = own + 0
    call('PEXPIRE', key, own)
  end
  return 'full' .. info .. ' ' .. int(now + math.max(0, left)) .. '\n' .. (value or '')
end

-- Returns how long an unused name is remembered (ms). A name with ticks may belong to a monthly
-- timer.
local function memory(state, version)
  return (version ~= '0' or call('HEXISTS', state, 'tick') == 1 or call('HEXISTS', state, 'asked') == 1
    or call('HEXISTS', state, 'starts') == 1)
    and long_retention or short_retention
end

-- Lets an unused name expire unless it has overrides. PERSIST is needed because a version of this
-- script without support for overrides may have set an expiry.
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
-- A server's run is identified by its master_replid: no other server was ever a master with that
-- id, and the id changes with each start and each promotion, even of the same process. The run_id
-- would not change in a failover and back. The epoch of Sentinel is appended because Sentinel knows
-- of failovers that this server may have missed: while it was cut off, another server was the
-- master, and this one became the master again before it learned of the other.
local function ask_server()
  told = redis.pcall('INFO', 'replication')
  if type(told) == 'table' then
    error('TICKSLOT SETUP scripts may not call INFO, without which a restart or a failover cannot be seen: '
      .. 'grant +info in the ACL, or see docs/redis.md if this service never allows it (NoQuarantine)\t'
      .. told.err, 0)
  end
  if not find(told, '\nrole:master\r', 1, true) then
    -- A writable replica has its master's run.
    if find(told, '\nrole:slave\r', 1, true) then
      error('READONLY this server is a replica, which grants nothing', 0)
    end
    untold()
  end
end

-- Returns when the process started (ms), or a later instant: the uptime is the difference of two
-- whole seconds and may be almost a second too large. If the clock was set back to before the
-- start, returns now.
local function started()
  local server = redis.pcall('INFO', 'server')
  local uptime = type(server) == 'string' and tonumber(string.match(server, 'uptime_in_seconds:(-?%d+)'))
  if not uptime then
    error('TICKSLOT SETUP this server does not tell its uptime_in_seconds (INFO server), so a restart '
      .. 'cannot be seen: see docs/redis.md', 0)
  end
  return uptime > 0 and now - (uptime - 1) * 1000 or now
end

-- Returns when this run began (ms), or a later instant; the leases that other runs granted have
-- ended by a quarantine after that. run and since are the values noted in key. The first script
-- that sees a run notes it.
local function began(key, run, since)
  local replid = string.match(told, '\nmaster_replid:(%w+)')
  this_run = this_run or replid and replid .. epoch
  if not this_run then untold() end
  since = count(since)
  if run == this_run and since <= now then return since end
  -- the noted epoch, or the first epoch if none was noted
  local before = run and sub(run, 41) or epoch ~= '' and '/0' or ''
  if run == this_run then
    since = now -- the clock was ahead when that was recorded
  elseif key == note and find(told, '\nsecond_repl_offset:-1\r', 1, true) and before == epoch then
    since = started() -- this server has been the only master since its start
  elseif key ~= note and not run then
    return started() -- the name is unknown, and on a Cluster no other key can be read
  else
    since = now
  end
  call('HSET', key, 'run', this_run, 'since', int(since))
  return since
end
local note_began -- determined when first needed

-- Returns when a name may be granted again (ms) if this server cannot be trusted yet. A server that
-- came back without its data, or took over, would grant slots that others still hold. If the server
-- can be trusted, returns nil and the run to note. run, since and version are the values of the
-- name. per is the period of its rate (ms), or nil: the server may also have forgotten the starts
-- within that period.
local function trusted(state, run, since, version, per)
  if not told then ask_server() end
  -- A plain-text search for the known run takes a fraction of the time of a pattern match.
  if run and run ~= this_run and find(told, '\nmaster_replid:' .. sub(run, 1, 40) .. '\r', 1, true)
    and sub(run, 41) == epoch then
    this_run = run
  end
  if run == this_run and (since == 0 or note ~= '' and not per) then return nil, run end
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
  local over = from + math.max(quarantine, per or 0) + 1 -- from may be the end of its millisecond, and now the start
  if now < over then return over end
  return nil, this_run
end

-- Raises an error if other hosts use the other form of the keys of a name: those hosts and this one
-- would not see each other's leases. If HGET fails in the tagged form, the other key is on another
-- node of a Cluster or not permitted, and the error is ignored. In the plain form the error is
-- raised, because the plain keys of a name would be on different nodes.
local function check_form(state, suffix)
  local name = sub(state, 1, -#suffix - 1)
  local other = (form == 'plain' and '{' .. name .. '}' or sub(name, 2, -2)) .. suffix
  local theirs = redis.pcall('HGET', other, 'form')
  if type(theirs) == 'table' and form == 'plain' then error(theirs.err, 0) end
  if type(theirs) == 'string' and theirs ~= form then error(other_form(other), 0) end
end

-- Raises an error if a later version has written the state. format is the field format of the
-- state.
local function check_format(state, format)
  if format and count(format) ~= 1 then
    error('TICKSLOT a later version of tickslot keeps key ' .. state .. ', in format ' .. format
      .. ', and this one knows format 1: update this host', 0)
  end
end

-- Returns the limit of an override, or -1 if there is none.
local function limit_of(state, text)
  local limit = tonumber(text or '-1')
  if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
    error('TICKSLOT key ' .. state .. ' has an invalid limit: set another', 0)
  end
  return limit
end

