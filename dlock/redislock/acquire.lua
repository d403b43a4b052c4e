-- Acquire: for each attempt take one slot, and one start of a tick, in one atomic step. A refusal
-- writes nothing, except what must be remembered: that a restarted server was seen, and corrections
-- of the index.
--
-- The keys of a name:
--   state   hash: fence, tick, starts, slots, run (master_replid of the server that granted
--           last), form, success (µs: when a grant was last released as succeeded), claimer (JSON
--           members: who started the tick last), kept (ms: when the expiry of the state was last
--           extended, and the name noted: see enlist.lua), schedule (of the tick), asked
--           (semaphore: a schedule that was asked about before a tick of it was claimed, and
--           since when, µs), released (mutex: 0 from a grant to its release, then 1; semaphore:
--           when a grant was last released, µs); of a semaphore also overrides, see update.lua, and
--           starts (those that count towards a rate: see package startlog).
--           A version that stores what this one would misread must write format, a number: 2. This
--           version then grants nothing of that name, and writes nothing
--   index   sorted set: slot -> when it ends (ms). The score of a released slot is its own number,
--           so the lowest released slot comes first. A hint: the slot's own key decides.
--   tokens  sorted set: token -> its slot, so that a repeated attempt finds its grant. A release
--           removes the token
--   base..i of slot i; of a mutex, base itself: the lease. Its value is JSON: token, maybe revoked,
--           fence, acquired_at (ms), holder, and ttl (ms: of its grant or last extension)
--   base..'released:'..i; of a mutex base..':slot:released': what was the value until the
--           release, without the token. It expires soon, and counts for nothing once the slot is
--           granted again
-- and one key that all names with a prefix share, so that a restart is waited for once and not
-- again for each name:
--   note    hash: run (master_replid), since (ms: that run began then, or before). On a Cluster no
--           key can be reached by every script, so these two are in the state of each name
--
-- KEYS[i] state of the name of the i-th attempt, from which the other keys are derived. On a
--         Cluster there is one attempt only, because others could be on different nodes. An attempt
--         that takes slots of further semaphores is alone, too; the states of these follow
-- ARGV[1] quarantine  ms; 0: none: the server is embedded, or restarts cannot be detected
-- ARGV[2] long_retention   ms after which an unused name with ticks or overrides may be forgotten
-- ARGV[3] short_retention  ms after which any other may; at least four times as long as a lease
-- ARGV[4] ahead   µs that a tick may lie ahead of the clock
-- ARGV[5] form    of the keys: plain or tagged   ARGV[6] note, see above; '': the state
-- ARGV[7] ttl     ms   ARGV[8] holder: JSON members to store, readable with redis-cli
-- ARGV[9] epoch   of the failover that made this server the master, after a slash; '' without
--                 Sentinel
-- ARGV[10] shared see enlist.lua; '': no names are noted
-- ARGV[11…] of each attempt: token; slots, 0: mutex, and those of the further semaphores, separated
--          by blanks, with a rate as slots/rate/per (µs); '' or the tick: its instant (µs),
--          allowed starts, when it came due if it is claimed as missed (µs), else 0, and its
--          schedule; or, of a tick with a delay: after, the
--          delay (µs), and its schedule
--
-- Returns {now µs, answer of each attempt …}. An answer is words separated by blanks, optionally
-- followed by a line break and a text:
--   ok INFO slot fence ABANDONED, which is 1 if the slot's previous holder did not release it; the
--      same five of each further semaphore follow
--   full INFO and when the first lease ends (ms); text: the value of its key
--   quarantine INFO and when it ends (ms)
--   paused INFO and when that ends (µs) or 0; text: the origin (JSON)
--   tick_taken INFO; text: the claimer
--   limit_full INFO, the number of the further semaphore (from 0), its INFO, and when its first
--      lease ends (ms); text: the value of its key
--   limit_rate INFO, the number and INFO likewise, and when the rate allows the next start (µs)
--   limit_paused INFO, the number and INFO likewise, and when that ends (µs) or 0; text: the origin
--   tick_early INFO and when the delay is over (µs)
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

-- The answer when a mutex is held; key has that value. See shorten.
local function taken(key, info, value)
  local left, own = call('PTTL', key), string.match(value or '', '"ttl":(%d+)')
  if own and left > own + 0 then
    left = own + 0
    call('PEXPIRE', key, own)
  end
  return 'full' .. info .. ' ' .. int(now + math.max(0, left)) .. '\n' .. (value or '')
end

-- How long an unused name is remembered. A name with ticks may belong to a monthly timer.
local function memory(state, version)
  return (version ~= '0' or call('HEXISTS', state, 'tick') == 1 or call('HEXISTS', state, 'asked') == 1
    or call('HEXISTS', state, 'starts') == 1)
    and long_retention or short_retention
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

-- Returns when a name may be granted again (ms), if this server cannot be trusted yet: one that
-- came back without its data, or took over, would grant what others still hold. Otherwise returns
-- nil, and the run to note. run, since and version are those of the name. per is that of its rate
-- (ms), or nil: the starts within it may be forgotten as well.
local function trusted(state, run, since, version, per)
  if not told then ask_server() end
  -- Searching for the known run as plain text takes a fraction of the time of a pattern.
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

-- Reports an error if other hosts use the other form of the keys of a name: they and we would not
-- see each other's leases. For the tagged form an error means that the other key is on another node
-- of a Cluster or not permitted, and is ignored. For the plain form it is an error, because its own
-- keys would be on different nodes.
local function check_form(state, suffix)
  local name = sub(state, 1, -#suffix - 1)
  local other = (form == 'plain' and '{' .. name .. '}' or sub(name, 2, -2)) .. suffix
  local theirs = redis.pcall('HGET', other, 'form')
  if type(theirs) == 'table' and form == 'plain' then error(theirs.err, 0) end
  if type(theirs) == 'string' and theirs ~= form then error(other_form(other), 0) end
end

-- Reports an error if a later version keeps the state; format is what it has noted there.
local function check_format(state, format)
  if format and count(format) ~= 1 then
    error('TICKSLOT a later version of tickslot keeps key ' .. state .. ', in format ' .. format
      .. ', and this one knows format 1: update this host', 0)
  end
end

-- Returns the limit of an override; -1: there is none.
local function limit_of(state, text)
  local limit = tonumber(text or '-1')
  if not limit or limit ~= math.floor(limit) or limit < -1 or limit > 10000 then
    error('TICKSLOT key ' .. state .. ' has an invalid limit: set another', 0)
  end
  return limit
end

