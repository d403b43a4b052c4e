-- Inspect: returns the overrides of a semaphore, and which of its ticks was claimed last.
--
-- KEYS[1] state: see acquire.lua and update.lua
-- ARGV[1] 'value': return the value, too
--
-- Returns {now µs, version, until µs, pause, limit, limit_order, trigger, at µs, tick µs, claimer,
-- value}; a missing field is ''

local fields = {'version', 'until', 'pause', 'limit', 'limit_order', 'trigger', 'at', 'tick', 'claimer'}
if ARGV[1] == 'value' then fields[#fields + 1] = 'value' end
local values = redis.pcall('HMGET', KEYS[1], unpack(fields))
if values.err then
  return redis.error_reply(no_state(KEYS[1], values.err))
end
local time = redis.call('TIME')
local result = {string.format('%.0f', time[1] * 1000000 + time[2])}
for i = 1, #fields do result[i + 1] = values[i] or '' end
return result
