-- Release: end leases of one name, if their tokens still hold them.
--
-- KEYS[1] state, KEYS[2] index, KEYS[3] tokens: see acquire.lua
-- ARGV[1] base   ARGV[2] slots, 0: mutex   ARGV[3] idle, ms
-- ARGV[4…] slot, token, 1 if the work ended well, slot, token …   slot -1: whichever the token holds
--
-- Returns {slots as declared, 0, 1 or 0 per lease}

local state, index, tokens = KEYS[1], KEYS[2], KEYS[3]
local base, mutex = ARGV[1], ARGV[2] == '0'
local known = redis.pcall('HMGET', state, 'slots', 'version')
if known.err then
  return redis.error_reply('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err)
end
local result = {known[1] or '0', 0} -- as extend.lua answers
local changes = {}
for i = 4, #ARGV, 3 do
  local slot, token = ARGV[i], ARGV[i + 1]
  local mine = '{"token":"' .. token .. '"'
  if slot == '-1' then slot = mutex and '0' or redis.call('ZSCORE', tokens, token) end
  local released = 0
  if slot then
    local key = mutex and base or base .. slot
    local value = redis.pcall('GET', key)
    if type(value) == 'table' then
      return redis.error_reply('TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err)
    end
    if value and string.sub(value, 1, #mine) == mine then
      redis.call('DEL', key)
      if mutex then
        changes.released = '1'
      else
        redis.call('ZADD', index, 'XX', slot, slot)
        redis.call('ZREM', tokens, token)
      end
      if ARGV[i + 2] == '1' then
        local time = redis.call('TIME')
        changes.success = string.format('%.0f', time[1] * 1000000 + time[2])
      end
      released = 1
    end
  end
  result[#result + 1] = released
end
for field, value in pairs(changes) do
  redis.call('HSET', state, field, value)
  if not known[2] then redis.call('PEXPIRE', state, ARGV[3]) end
end
return result
