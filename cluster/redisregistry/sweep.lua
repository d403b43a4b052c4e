-- Sweep: deletes old rows.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  maximum number of rows of each kind to delete
-- ARGV[2]  retention of hosts, µs    ARGV[3]  of leases    ARGV[4]  of events    ARGV[5]  of runs
--
-- Returns {number of deleted rows}

local limit, deleted = tonumber(ARGV[1]), 0

local rows, old_hosts = call('HGETALL', hosts), 0
for i = 1, #rows, 2 do
  local seen, ttl = string.match(rows[i + 1], '^(%d+) %d+ (%d+) ')
  if old_hosts < limit and (not seen or now - seen > math.max(tonumber(ARGV[2]), 3 * ttl)) then
    call('HDEL', hosts, rows[i])
    call('HDEL', details, rows[i])
    old_hosts = old_hosts + 1
  end
end

if call('HLEN', counted) > call('HLEN', hosts) then
  local all = call('HGETALL', counted)
  for i = 1, #all, 2 do
    if not call('HGET', hosts, all[i]) then call('HDEL', counted, all[i]) end
  end
end

-- Calls delete for each member of a sorted set that is older than its retention. base is subtracted
-- from the scores.
local function sweep(set, retention, delete, base)
  base = base or 0
  local old = call('ZRANGEBYSCORE', set, int(base), '(' .. int(base + now - retention), 'LIMIT', 0, limit)
  for _, member in ipairs(old) do
    delete(member)
    call('ZREM', set, member)
  end
  deleted = deleted + #old
end

deleted = old_hosts
sweep(ends, ARGV[3], function(key) call('HDEL', leases, key) end)
sweep(order, ARGV[4], function(id) call('HDEL', events, id) end)
sweep(ended, ARGV[5], function(member)
  call('HDEL', runs, run_id(member))
  call('ZREM', timers, member)
end)
for _, base in ipairs({0, FAILING}) do
  sweep(ranked, ARGV[5], function(timer) call('HDEL', records, timer) end, base)
end
sweep(gone, 0, function(field) call('HDEL', buckets, field) end)
return {deleted}
