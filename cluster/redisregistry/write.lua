-- Write: writes a batch of one host.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  time to live of the keys, ms
-- ARGV[2]  most events      ARGV[3]  most runs of a timer
-- ARGV[4]  hosts, 0 or 1    ARGV[5]  leases    ARGV[6]  events    ARGV[7]  runs
-- and then, each row at most once, all times in µs before now, or from now for expires:
--   of a host   key, up, ttl, row, detail or ''
--   of a lease  key, held, renewed, expires, released 0 or 1, fence, grant, row
--   of an event id, ago, row
--   of a run    id, <length>:<timer>, ended, row
--
-- Returns {now µs, 1 if the host is unknown and has sent no detail}

local next_arg = 7
local function arg()
  next_arg = next_arg + 1
  return ARGV[next_arg]
end

local unknown = 0
for _ = 1, tonumber(ARGV[4]) do
  local key, up, ttl, row, detail = arg(), tonumber(arg()), arg(), arg(), arg()
  local old = call('HGET', hosts, key)
  local seen, started = string.match(old or '', '^(%d+) (%d+) ')
  if not seen and detail == '' then
    unknown = 1
  elseif not seen or up >= seen - started then -- else it was overtaken by a later heartbeat
    call('HSET', hosts, key, int(now) .. ' ' .. int(now - up) .. ' ' .. ttl .. ' ' .. row)
    if detail ~= '' then call('HSET', details, key, detail) end
  end
end

local function live(released, expires) return released == '0' and expires > now end

-- Reports whether a record replaces a row: see cluster.LeaseRecord. Fences are compared as text,
-- because numbers are exact below 2^53 only.
local function replaces(old, acquired, expires, released, fence, grant)
  local was_acquired, was_expires, was_released, was_fence, was_grant = string.match(old,
    '^(%d+) %d+ (%d+) ([01]) (%d+) (%w+) ')
  if not was_grant then
    return true -- the row is not one of ours
  elseif grant == was_grant then
    return was_released == '0'
  elseif fence ~= '0' and was_fence ~= '0' then
    return #fence > #was_fence or #fence == #was_fence and fence > was_fence
  elseif live(released, expires) and not live(was_released, tonumber(was_expires)) then
    return true -- the row may be a late record of an earlier holder
  end
  return acquired > tonumber(was_acquired)
end

for _ = 1, tonumber(ARGV[5]) do
  local key, acquired, renewed, expires = arg(), now - arg(), now - arg(), now + arg()
  local released, fence, grant, row = arg(), arg(), arg(), arg()
  local old = call('HGET', leases, key)
  if not old or replaces(old, acquired, expires, released, fence, grant) then
    call('HSET', leases, key, string.format('%.0f %.0f %.0f %s %s %s %s', acquired, renewed, expires, released,
      fence, grant, row))
    call('ZADD', ends, int(released == '1' and renewed or math.max(renewed, expires)), key)
  end
end

for _ = 1, tonumber(ARGV[6]) do
  local id, at, row = arg(), int(now - arg()), arg()
  if call('HSETNX', events, id, at .. ' ' .. row) == 1 then call('ZADD', order, at, id) end
end
local surplus = call('ZCARD', order) - tonumber(ARGV[2])
if surplus > 0 then
  for _, id in ipairs(call('ZRANGE', order, 0, surplus - 1)) do
    call('HDEL', events, id)
    call('ZREM', order, id)
  end
end

local touched = {}
for _ = 1, tonumber(ARGV[7]) do
  local id, timer, at, row = arg(), arg(), now - arg(), arg()
  if call('HSETNX', runs, id, int(at) .. ' ' .. row) == 1 then
    local member = timer .. string.format('%016.0f', at) .. id
    call('ZADD', ended, int(at), member)
    call('ZADD', timers, 0, member)
    touched[timer] = true
  end
end
for timer in pairs(touched) do
  for _, member in ipairs(call('ZRANGE', timers, '(' .. timer .. ':', '[' .. timer, 'BYLEX', 'REV', 'LIMIT', ARGV[3],
    1000000)) do
    call('HDEL', runs, run_id(member))
    call('ZREM', ended, member)
    call('ZREM', timers, member)
  end
end

for _, key in ipairs(KEYS) do call('PEXPIRE', key, ARGV[1]) end
return {int(now), unknown}
