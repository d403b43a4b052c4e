-- Extend: make leases last ttl from now, if their tokens still hold them and nobody has revoked them.
--
-- KEYS[i] state   of the name of the i-th lease, see acquire.lua. On a Cluster all are one, or the leases would be on different
--         nodes, and behind them stand the keys of the leases
-- ARGV[1] ttl, ms   ARGV[2] idle, ms   ARGV[3] brief, ms: see acquire.lua
-- ARGV[4] words: slot, '' for a mutex, and token of each lease, each with a blank behind it
--
-- Returns {words, origin or error, origin or error …}, where words has for each lease, with a blank between any two, its outcome (1: extended;
-- 0: lost; revoked: by the next origin (JSON); error: the next error), the slots as declared, and the version of the overrides or 0.
-- One text is a tenth of the work for the client than many values are.

local redis, string = redis, string -- globals are looked up by name, each time
local ttl = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%.0f', now + ttl)
local words, more = {}, {''}

local i = 0 -- of the lease
local state, known, base, index, slots, version -- of its name
for slot, token in string.gmatch(ARGV[4], '(%S*) (%S+) ') do
  i = i + 1
  local mine, mutex = '{"token":"' .. token .. '"', slot == ''
  if KEYS[i] ~= state then -- those of one name often come one after the other
    state = KEYS[i]
    base = base_of(state, mutex)
    index = base .. 'index'
    known = redis.pcall('HMGET', state, 'slots', 'version', 'kept')
    slots, version = '0', '0'
    if not known.err then
      -- A run may outlast the time after which an unused name is forgotten. One that has overrides is not.
      local kept = tonumber(known[3])
      if known[1] and (not kept or kept > now or now - kept > ARGV[3] / 4) then
        redis.pcall('HSET', state, 'kept', string.format('%.0f', now)) -- without memory, the next time
        local memory = (known[2] or redis.call('HEXISTS', state, 'tick') == 1) and ARGV[2] or ARGV[3]
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
    -- No text of an origin has a quote in it that is not escaped, so the first fence is the member behind it.
    outcome, more[#more + 1] = 'revoked', string.sub(value, #mine + 12, (string.find(value, ',"fence":', #mine + 12, true) or 0) - 1)
  else
    redis.call('PEXPIRE', key, ttl)
    -- The index is a hint. If something else stands in its place, that must not cost this lease, nor those behind it. Acquire tells of it.
    if not mutex then redis.pcall('ZADD', index, 'XX', ends, slot) end
  end
  words[3 * i - 2], words[3 * i - 1], words[3 * i] = outcome, slots, version
end
more[1] = table.concat(words, ' ')
return more
