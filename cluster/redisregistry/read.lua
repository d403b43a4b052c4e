-- Read: returns all hosts and leases, the newest events and runs, and the records of timers.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  events to return    ARGV[2]  runs to return    ARGV[3]  records to return
--
-- Returns {now µs, {host key, row …}, {host key, detail …}, {lease row …}, {event row …},
-- {run row …}, {record row …}}; a missing row is nil

-- Returns the rows with the given IDs, 1,000 per call because unpack fails with too many values.
local function rows(hash, ids)
  local found = {}
  for from = 1, #ids, 1000 do
    local some = call('HMGET', hash, unpack(ids, from, math.min(from + 999, #ids)))
    for i = 1, #some do found[#found + 1] = some[i] end
  end
  return found
end

-- Returns the n newest members of a sorted set.
local function newest(set, n)
  return tonumber(n) > 0 and call('ZRANGE', set, 0, n - 1, 'REV') or {}
end

local ids = newest(ended, ARGV[2])
for i = 1, #ids do ids[i] = run_id(ids[i]) end
return {int(now), call('HGETALL', hosts), call('HGETALL', details), call('HVALS', leases),
  rows(events, newest(order, ARGV[1])), rows(runs, ids), rows(records, newest(ranked, ARGV[3]))}
