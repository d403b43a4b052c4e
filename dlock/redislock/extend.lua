-- Extend: make leases of one name last ttl from now, if their tokens still hold them.
--
-- KEYS[1] state, KEYS[2] index: see acquire.lua
-- ARGV[1] base   ARGV[2] slots, 0: mutex   ARGV[3] ttl, ms   ARGV[4] idle, ms
-- ARGV[5…] slot, token, slot, token …
--
-- Returns {slots as declared, 1 or 0 per lease}

local state, index = KEYS[1], KEYS[2]
local base, mutex, ttl = ARGV[1], ARGV[2] == '0', ARGV[3]
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ttl)
local result = {redis.call('HGET', state, 'slots') or '0'}
for i = 5, #ARGV, 2 do
  local slot, mine = ARGV[i], '{"token":"' .. ARGV[i + 1] .. '"'
  local key = mutex and base or base .. slot
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    return redis.error_reply('TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err)
  end
  if value and string.sub(value, 1, #mine) == mine then
    redis.call('PEXPIRE', key, ttl)
    if not mutex then redis.call('ZADD', index, 'XX', ends, slot) end
    result[#result + 1] = 1
  else
    result[#result + 1] = 0
  end
end
-- A run may outlast the time after which an unused name is forgotten.
redis.call('PEXPIRE', state, ARGV[4])
if not mutex then redis.call('PEXPIRE', index, ARGV[4]) end
return result
