-- Enumerate: returns a page of the leases of all names: those that the indexes show as held, and
-- those that were released recently. It writes nothing.
--
-- KEYS[1] names  see enlist.lua
-- ARGV[1] after  the page begins after this member; '': at the first member
-- ARGV[2] limit  the page ends with the name in which the number of leases reaches limit
-- ARGV[3] most   or with the name in which the number of keys reaches most: a page must not hold up
--         the server
-- ARGV[4] kept   ms for which release.lua keeps a release
--
-- Returns {now ms, where the next page begins or '', then for each lease: state of its name, slot,
-- time left ms, -1 or how long ago it was released (ms), and value}

local names, after, limit, most, kept = KEYS[1], ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local time = redis.call('TIME')
local result = {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), ''}
local leases, seen = 0, 0

-- Calls a command. A key of the wrong type counts as missing; acquire.lua reports it. If the
-- command is not permitted, or the key is being moved to another node of a Cluster, raises an
-- error.
local function read(command, key, ...)
  local got = redis.pcall(command, key, ...)
  if type(got) == 'table' and got.err then
    if string.find(got.err, 'WRONGTYPE', 1, true) then return false end
    error('TICKSLOT key ' .. key .. ' cannot be read:\t' .. got.err, 0)
  end
  return got
end

local function add(state, slot, left, ago, value)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4], result[n + 5] = state, slot, left, ago, value
  leases = leases + 1
end
local function held(state, slot, key, value) add(state, slot, read('PTTL', key), -1, value) end
local function released(state, slot, key, value)
  add(state, slot, 0, math.max(0, kept - read('PTTL', key)), value)
end

-- Returns the values of the existing keys, by slot. A key of the wrong type has no value.
local function values(start, slots)
  local found = {}
  for from = 1, #slots, 1000 do
    local keys = {}
    for i = from, math.min(from + 999, #slots) do keys[#keys + 1] = start .. slots[i] end
    local got = read('MGET', unpack(keys))
    for i = 1, #keys do found[slots[from + i - 1]] = got[i] end
  end
  seen = seen + #slots
  return found
end

local function mutex(state, base)
  local value = read('GET', base)
  if value then return held(state, 0, base, value) end
  local key = base .. ':slot:released'
  value = read('GET', key)
  -- not if the mutex was granted again and that lease has expired
  if value and read('HGET', state, 'released') ~= '0' then released(state, 0, key, value) end
end

local function semaphore(state, base)
  local slots, free = read('ZRANGE', base .. 'index', '0', '-1') or {}, {}
  local taken = values(base, slots)
  for _, slot in ipairs(slots) do
    if taken[slot] then
      held(state, slot, base .. slot, taken[slot])
    else
      free[#free + 1] = slot
    end
  end
  for slot, value in pairs(values(base .. 'released:', free)) do
    -- a later lease that has expired leaves its token behind
    if value and read('ZCOUNT', base .. 'tokens', slot, slot) == 0 then
      released(state, slot, base .. 'released:' .. slot, value)
    end
  end
end

local some = 100
local function page()
  local from = after == '' and '-' or '(' .. after
  while true do
    local states = read('ZRANGE', names, from, '+', 'BYLEX', 'LIMIT', '0', some)
    if not states then error('TICKSLOT key ' .. names .. ' does not hold the names in use: delete it', 0) end
    for i, state in ipairs(states) do
      seen = seen + 1
      if string.sub(state, -#':slot:mutex') == ':slot:mutex' then
        mutex(state, base_of(state, true))
      else
        semaphore(state, base_of(state, false))
      end
      if leases >= limit or seen >= most then
        if i < #states or #states == some then result[2] = state end
        return
      end
    end
    if #states < some then return end
    from = '(' .. states[#states]
  end
end

local fine, why = pcall(page)
if fine then return result end
return redis.error_reply(tostring(why))
