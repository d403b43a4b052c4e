-- Extend: make leases of one name last ttl from now, if their tokens still hold them and nobody has revoked them.
--
-- KEYS[1] state, KEYS[2] index: see acquire.lua
-- ARGV[1] base   ARGV[2] slots, 0: mutex   ARGV[3] ttl, ms   ARGV[4] idle, ms
-- ARGV[5…] slot, token, slot, token …
--
-- Returns {slots as declared, version of the orders or 0, per lease 1, 0, or the order that revoked it (JSON)}

local state, index = KEYS[1], KEYS[2]
local base, mutex, ttl = ARGV[1], ARGV[2] == '0', ARGV[3]
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ttl)
local known = redis.pcall('HMGET', state, 'slots', 'version')
if known.err then
  return redis.error_reply('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err)
end
local result = {known[1] or '0', known[2] or '0'}
for i = 5, #ARGV, 2 do
  local slot, mine = ARGV[i], '{"token":"' .. ARGV[i + 1] .. '"'
  local key = mutex and base or base .. slot
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    return redis.error_reply('TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err)
  end
  local held = value and string.sub(value, 1, #mine) == mine
  if held and string.sub(value, #mine + 1, #mine + 11) == ',"revoked":' then
    -- No text of an order has a quote in it that is not escaped, so the first fence is the member behind it.
    result[#result + 1] = string.sub(value, #mine + 12, (string.find(value, ',"fence":', #mine + 12, true) or 0) - 1)
  elseif held then
    redis.call('PEXPIRE', key, ttl)
    if not mutex then redis.call('ZADD', index, 'XX', ends, slot) end
    result[#result + 1] = 1
  else
    result[#result + 1] = 0
  end
end
-- A run may outlast the time after which an unused name is forgotten. One for which something is ordered is not.
if not known[2] then redis.call('PEXPIRE', state, ARGV[4]) end
if not mutex then redis.call('PEXPIRE', index, ARGV[4]) end
return result
