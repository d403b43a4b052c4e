-- All keys of a registry, and the store's time in microseconds since 1970.
--
-- hosts    hash: host -> 'seen started ttl row'       details  hash: host -> its Detail
-- leases   hash: lease -> 'acquired renewed expires released fence grant row'
-- ends     sorted set: lease by when it was renewed, released or ended last
-- events   hash: id -> 'at row'                       order    sorted set: id by at
-- runs     hash: id -> 'ended row'                    ended    sorted set: run by ended
-- timers   sorted set of runs, all with score 0: by timer, and of one timer by ended
--
-- A run in ended and timers is <length>:<timer><ended, 16 digits><id>. The length keeps the runs of
-- a timer apart from those of another whose name begins like its own. A row is JSON, which only
-- hosts read.
local hosts, details, leases, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local events, order, runs, ended, timers = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Numbers are written in full: Lua's own conversion gives 1.79e+15.
local function int(x) return string.format('%.0f', x) end

-- Returns the ID of a run in ended or timers.
local function run_id(member)
  local digits = string.match(member, '^%d+')
  return string.sub(member, #digits + 2 + tonumber(digits) + 16)
end
