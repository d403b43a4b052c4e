-- Release: ends leases if their tokens still hold them.
--
-- KEYS[i] state of the name of the i-th lease, see acquire.lua. On a Cluster all leases have the
--         same state, and the keys of the leases follow
-- ARGV[1] short_retention: see acquire.lua
-- ARGV[2] keep    ms for which the release is kept, with its holder; '0': it is not kept
-- ARGV[3…] of each lease: slot ('' for a mutex; -1: the slot that the token holds); token; 1 if the
--         work succeeded, otherwise 0
--
-- Returns {'', answer for each lease …}. An answer is two words, the outcome (1: released; 0: lost)
-- and the declared number of slots; or it is error, a line break, and what is wrong with this name

local call, sub = redis.call, string.sub
local micros -- time as text, determined on first use

-- HSET may have created the state, and a state without overrides must have an expiry.
local function note(state, ...)
  local added = redis.pcall('HSET', state, ...)
  if type(added) == 'table' then error(no_state(state, added.err), 0) end
  if added > 0 and call('PTTL', state) < 0 and not call('HGET', state, 'version') then
    call('PEXPIRE', state, ARGV[1])
  end
end

-- Keeps the value that a lease had until its release, without the token. after_token is where the
-- token's member ends. If the value cannot be kept, the release succeeds nevertheless.
local function keep(key, value, after_token)
  if sub(value, after_token + 1, after_token + 1) ~= ',' then return end
  -- on a Cluster: see enlist.lua; the second key is in the same hash slot and never exists
  if sub(key, 1, 1) == '{' and redis.pcall('MGET', key, key .. ':').err then return end
  redis.pcall('SET', key, '{' .. sub(value, after_token + 2), 'PX', ARGV[2])
end

local function release(state, slot, token, well)
  local mutex = slot == ''
  local base = base_of(state, mutex)
  local mine = '{"token":"' .. token .. '"'
  local slots = '0' -- as declared; always 0 for a mutex
  if not mutex then
    slots = redis.pcall('HGET', state, 'slots')
    if type(slots) == 'table' then error(no_state(state, slots.err), 0) end
    if slot == '-1' then slot = call('ZSCORE', base .. 'tokens', token) end
  end
  local key = slot and base .. slot
  local value = key and redis.pcall('GET', key)
  if type(value) == 'table' then
    error(no_lease(key, value.err), 0)
  end
  local released = value and sub(value, 1, #mine) == mine
  if released then
    call('DEL', key) -- DEL first: a server that is out of memory permits writes only afterwards
    if not mutex then
      call('ZADD', base .. 'index', 'XX', slot, slot)
      call('ZREM', base .. 'tokens', token)
    end
    if ARGV[2] ~= '0' then keep(mutex and base .. ':slot:released' or base .. 'released:' .. slot, value, #mine) end
    if not micros then
      local time = call('TIME')
      micros = time[1] .. sub('00000' .. time[2], -6)
    end
    local when = mutex and '1' or micros -- see acquire.lua
    if well == '1' then
      note(state, 'released', when, 'success', micros)
    else
      note(state, 'released', when)
    end
  end
  return (released and '1 ' or '0 ') .. (slots or '0')
end

return each('', (#ARGV - 2) / 3, 0, release)
