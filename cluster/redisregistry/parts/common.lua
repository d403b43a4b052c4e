-- All keys of a registry, and the store's time in microseconds since 1970.
--
-- hosts    hash: host -> 'seen started ttl row'       details  hash: host -> its Detail
-- leases   hash: lease -> 'acquired renewed expires released fence grant row'
-- ends     sorted set: lease by when it was renewed, released or ended last
-- events   hash: id -> 'at row'                       order    sorted set: id by at
-- runs     hash: id -> 'ended row'                    ended    sorted set: run by ended
-- timers   sorted set of runs, all with score 0: by timer, and of one timer by ended
-- counted  hash: host -> Number of its last batch that was counted
-- records  hash: <length>:<timer> -> 'ended succeeded first last failures outcomes row'
-- ranked   sorted set: timer by ended, those that fail above all others
-- buckets  hash: <length>:<timer>:<span><number> -> 'number,bin,runs,failed,took,longest;' …
-- gone     sorted set: the fields of buckets by when they are deleted
--
-- In records, succeeded is when the last success ended, or 0; first and last are when the first and
-- the last of the failures in a row ended. A field of buckets has those of an hour or a day.
--
-- A run in ended and timers is <length>:<timer><ended, 16 digits><id>. The length keeps the runs of
-- a timer apart from those of another whose name begins like its own. A row is JSON, which only
-- hosts read.
local hosts, details, leases, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local events, order, runs, ended, timers = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local counted, records, ranked, buckets, gone = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]

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
