-- Orders: what is ordered for a semaphore, and which of its ticks was claimed last.
--
-- KEYS[1] orders: see order.lua   KEYS[2] state: see acquire.lua
--
-- Returns {now µs, version, until µs, pause, limit, limit_order, trigger, at µs, tick µs, claimer}, each '' if there is none

local result = {}
local function read(key, what, ...)
  local values = redis.pcall('HMGET', key, ...)
  if values.err then error('TICKSLOT key ' .. key .. ' does not hold ' .. what .. ' a lock: ' .. values.err, 0) end
  for i = 1, select('#', ...) do result[#result + 1] = values[i] or '' end
end
local time = redis.call('TIME')
result[1] = string.format('%.0f', time[1] * 1000000 + time[2])
read(KEYS[1], 'the orders for', 'version', 'until', 'pause', 'limit', 'limit_order', 'trigger', 'at')
read(KEYS[2], 'the state of', 'tick', 'claimer')
return result
