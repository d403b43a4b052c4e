-- Write: writes a batch from one host.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  time to live of the keys, ms
-- ARGV[2]  maximum events   ARGV[3]  maximum runs of a timer
-- ARGV[4]  hosts, 0 or 1    ARGV[5]  leases    ARGV[6]  events    ARGV[7]  runs
-- ARGV[8]  Number           ARGV[9]  records   ARGV[10] buckets
-- followed by rows, each at most once. Times are in µs before now; expires is in µs from now:
--   of a host   key, up, ttl, row, detail or ''
--   of a lease  key, held, renewed, expires, released 0 or 1, fence, grant, row
--   of an event id, ago, row
--   of a run    id, <length>:<timer>, ended, row
--   of a record <length>:<timer>, ended, succeeded or '', first, last, failures, outcomes, most
--               outcomes, row
--   of a bucket <length>:<timer>, width, middle, letter, span, retention, bin, runs, failed,
--               took, longest
--
-- Returns {now µs, 1 if the host is unknown and has not sent its detail}

local next_arg = 10
local function arg()
  next_arg = next_arg + 1
  return ARGV[next_arg]
end

local unknown, counts = 0, false
for _ = 1, tonumber(ARGV[4]) do
  local key, up, ttl, row, detail = arg(), tonumber(arg()), arg(), arg(), arg()
  local old = call('HGET', hosts, key)
  local seen, started = string.match(old or '', '^(%d+) (%d+) ')
  if not seen and detail == '' then
    unknown = 1
  elseif not seen or up >= seen - started then -- otherwise a later heartbeat has overtaken it
    call('HSET', hosts, key, int(now) .. ' ' .. int(now - up) .. ' ' .. ttl .. ' ' .. row)
    if detail ~= '' then call('HSET', details, key, detail) end
    local last = string.match(call('HGET', counted, key) or '', '^%d+$') or '0'
    if seen and (#last > 16 or tonumber(ARGV[8]) > tonumber(last)) then -- otherwise already counted
      call('HSET', counted, key, ARGV[8])
      counts = true
    end
  end
end

local function live(released, expires) return released == '0' and expires > now end

-- Reports whether a record replaces a row: see cluster.LeaseRecord. Fences are compared as text,
-- because numbers are exact only below 2^53.
local function replaces(old, acquired, expires, released, fence, grant)
  local was_acquired, was_expires, was_released, was_fence, was_grant = string.match(old,
    '^(%d+) %d+ (%d+) ([01]) (%d+) (%w+) ')
  if not was_grant then
    return true -- another program wrote the row
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

-- Merges the record in a batch into the stored record: see cluster.Merge.
local function merge(old, r)
  local was_ended, was_succeeded, was_first, was_last, was_failures, was_outcomes, was_row =
    string.match(old, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not was_row then return r end -- another program wrote the row
  local m = {succeeded = math.max(r.succeeded, tonumber(was_succeeded)), failures = 0, first = 0, last = 0,
    ended = r.ended, row = r.row, outcomes = string.sub(was_outcomes .. r.outcomes, -r.most), most = r.most}
  local was = {tonumber(was_first), tonumber(was_last), tonumber(was_failures)}
  for _, f in ipairs({was, {r.first, r.last, r.failures}}) do
    local first, last, failures = f[1], f[2], f[3]
    if failures > 0 and last > m.succeeded then
      if first <= m.succeeded then first, failures = last, 1 end
      m.first = m.failures == 0 and first or math.min(m.first, first)
      m.last, m.failures = math.max(m.last, last), m.failures + failures
    end
  end
  if tonumber(was_ended) > m.ended then m.ended, m.row = tonumber(was_ended), was_row end
  return m
end

for _ = 1, counts and tonumber(ARGV[9]) or 0 do
  local timer, at, succeeded, first, last = arg(), now - arg(), arg(), now - arg(), now - arg()
  local failures, outcomes, most, row = tonumber(arg()), arg(), tonumber(arg()), arg()
  local r = {ended = at, succeeded = succeeded == '' and 0 or now - succeeded, first = first, last = last,
    failures = failures, outcomes = outcomes, most = most, row = row}
  r = merge(call('HGET', records, timer) or '', r)
  if r.failures == 0 then r.first, r.last = 0, 0 end
  call('HSET', records, timer, string.format('%.0f %.0f %.0f %.0f %d %s %s', r.ended, r.succeeded, r.first, r.last,
    r.failures, r.outcomes, r.row))
  call('ZADD', ranked, int(r.ended + (r.failures > 0 and FAILING or 0)), timer)
end

-- Adds a bucket to those of its span.
local function add(old, number, bin, runs, failed, took, longest)
  local first, last, a, b, c, d = string.find(';' .. old, ';' .. number .. ',' .. bin .. ',(%d+),(%d+),(%d+),(%d+);')
  if first then
    runs, failed, took, longest = int(a + runs), int(b + failed), int(c + took), int(math.max(d, longest))
    old = string.sub(old, 1, first - 1) .. string.sub(old, last)
  end
  return old .. table.concat({number, bin, runs, failed, took, longest}, ',') .. ';'
end

for _ = 1, counts and tonumber(ARGV[10]) or 0 do
  local timer, width, at, letter, span, retention = arg(), arg(), now - arg(), arg(), arg(), arg()
  local bin, runs, failed, took, longest = arg(), arg(), arg(), arg(), arg()
  local n = math.floor(at / span)
  local field = timer .. ':' .. letter .. int(n)
  local old = call('HGET', buckets, field) or ''
  call('HSET', buckets, field, add(old, int(math.floor(at / width)), bin, runs, failed, took, longest))
  if old == '' then call('ZADD', gone, int((n + 1) * span + retention), field) end
end

for _, key in ipairs(KEYS) do call('PEXPIRE', key, ARGV[1]) end
return {int(now), unknown}
