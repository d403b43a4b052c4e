-- Extend: makes leases last ttl from now if their tokens still hold them and they are not revoked.
--
-- KEYS[i] state   of the name of the i-th lease, see acquire.lua. On a Cluster, all leases have the
--         same state, because leases of several names could be on different nodes, and the keys of
--         the leases follow
-- ARGV[1] ttl, ms   ARGV[2] long_retention   ARGV[3] short_retention: see acquire.lua
-- ARGV[4] shared  see enlist.lua; '': names are not added
-- ARGV[5] words: slot ('' for a mutex) and token of each lease, each followed by a blank
--
-- Returns {words, origin or error, origin or error …}. words has three values for each lease,
-- separated by blanks: its outcome (1: extended; 0: lost; revoked: by the next origin (JSON);
-- error: the next error), the declared number of slots, and the version of the overrides or 0. One
-- text costs the client a tenth of the time that many values cost.

local redis, string = redis, string -- Lua looks up a global by name on each use
local ttl = ARGV[1]
local told_ttl = ',"ttl":' .. ttl .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%.0f', now + ttl)
local words, more = {}, {''}

local i = 0 -- index of the lease
local state, known, base, index, slots, version -- of the lease's name
for slot, token in string.gmatch(ARGV[5], '(%S*) (%S+) ') do
  i = i + 1
  local mine, mutex = '{"token":"' .. token .. '"', slot == ''
  if KEYS[i] ~= state then -- consecutive leases often have the same name
    state = KEYS[i]
    base = base_of(state, mutex)
    index = base .. 'index'
    known = redis.pcall('HMGET', state, 'slots', 'version', 'kept')
    slots, version = '0', '0'
    if not known.err then
      -- A run may last longer than an unused name is remembered. A name with overrides does not
      -- expire.
      local kept = tonumber(known[3])
      if known[1] and (not kept or kept > now or now - kept > ARGV[3] / 4) then
        -- If the server is out of memory, the next heartbeat writes it.
        local now_text = string.format('%.0f', now)
        redis.pcall('HSET', state, 'kept', now_text)
        enlist(ARGV[4], state, now, now_text, ARGV[3])
        local memory = (known[2] or redis.call('HEXISTS', state, 'tick') == 1
          or redis.call('HEXISTS', state, 'starts') == 1) and ARGV[2] or ARGV[3]
        if not known[2] then redis.call('PEXPIRE', state, memory) end
        if not mutex then redis.call('PEXPIRE', index, memory) end
      end
      slots = known[1] and string.match(known[1], '^%d+$') or '0'
      version = known[2] and string.match(known[2], '^%d+$') or '0'
    end
  end
  local key = mutex and base or base .. slot
  local value = not known.err and redis.pcall('GET', key)
  local outcome = '1'
  if known.err then
    outcome, more[#more + 1] = 'error', no_state(state, known.err)
  elseif type(value) == 'table' then
    outcome, more[#more + 1] = 'error', no_lease(key, value.err)
  elseif not value or string.sub(value, 1, #mine) ~= mine then
    outcome = '0'
  elseif string.sub(value, #mine + 1, #mine + 11) == ',"revoked":' then
    -- Quotes in the texts of an origin are escaped, so the first ',"fence":' is the member after
    -- the origin.
    local from = #mine + 12
    local to = (string.find(value, ',"fence":', from, true) or 0) - 1
    outcome, more[#more + 1] = 'revoked', string.sub(value, from, to)
  else
    local failed = renew(key, value, ttl, told_ttl)
    if failed then outcome, more[#more + 1] = 'error', failed end
    -- The index is a hint. A key of the wrong type in its place must affect neither this lease nor
    -- the leases after it. Acquire reports such a key.
    if not mutex and not failed then redis.pcall('ZADD', index, 'XX', ends, slot) end
  end
  words[3 * i - 2], words[3 * i - 1], words[3 * i] = outcome, slots, version
end
more[1] = table.concat(words, ' ')
return more
