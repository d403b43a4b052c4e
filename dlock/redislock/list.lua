-- List: returns the leases in the index. After a loss of the index, leases reappear with later
-- acquires.
--
-- KEYS[1] index   ARGV[1] base   ARGV[2] slots; 0: a mutex
--
-- Returns {now ms, slot, time left ms, value, slot, time left ms, value …}

local base, mutex = ARGV[1], ARGV[2] == '0'
local time = redis.call('TIME')
local result = {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))}
local slots = mutex and {'0'} or redis.call('ZRANGE', KEYS[1], 0, -1)
for _, slot in ipairs(slots) do
  local key = mutex and base or base .. slot
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then
    result[#result + 1] = tonumber(slot)
    result[#result + 1] = redis.call('PTTL', key)
    result[#result + 1] = value
  end
end
return result
