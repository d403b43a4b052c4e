-- All keys of a registry, and the server's time in microseconds since 1970.
--
-- hosts    hash: host -> 'seen started ttl row'       details  hash: host -> its Detail
-- leases   hash: lease -> 'acquired renewed expires released fence grant row'
-- ends     sorted set: lease by the time at which it was last renewed, released or ended
-- events   hash: id -> 'at row'                       order    sorted set: id by at
-- runs     hash: id -> 'ended row'                    ended    sorted set: run by ended
-- timers   sorted set of runs, all with score 0: by timer, and for each timer by ended
-- counted  hash: host -> Number of the last batch of this host that was counted
-- records  hash: <length>:<timer> -> 'ended succeeded first last failures outcomes row'
-- ranked   sorted set: timer by ended, those that fail above all others
-- buckets  hash: <length>:<timer>:<span><number> -> 'number,bin,runs,failed,took,longest;' …
-- gone     sorted set: the fields of buckets by when they are deleted
--
-- In records, succeeded is when the last success ended, or 0. first and last are when the first and
-- the last failure of the current streak ended. A field of buckets holds all buckets of an hour or
-- of a day.
--
-- A run in ended and timers is <length>:<timer><ended, 16 digits><id>. The length separates the
-- runs of a timer from those of a timer whose longer name begins the same way. A row is JSON that
-- only hosts read.
local hosts, details, leases, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local events, order, runs, ended, timers = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local counted, records, ranked, buckets, gone = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Formats a number in full, because the default conversion of Lua yields 1.79e+15.
local function int(x) return string.format('%.0f', x) end

-- Returns the ID of a run from its member in ended or timers.
local function run_id(member)
  local digits = string.match(member, '^%d+')
  return string.sub(member, #digits + 2 + tonumber(digits) + 16)
end
