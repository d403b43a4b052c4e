-- Extend: make leases last ttl from now, if their tokens still hold them and nobody has revoked them.
--
-- KEYS[i] state   of the name of the i-th lease, see acquire.lua. On a Cluster all are one, or the leases would be on different nodes
-- ARGV[1] ttl, ms   ARGV[2] idle, ms
-- ARGV[3…] slot, '' for a mutex, and token of each lease
--
-- Returns {words, order or error, order or error …}, where words has for each lease, with a blank between any two, its outcome (1: extended;
-- 0: lost; revoked: by the next order (JSON); error: the next error), the slots as declared, and the version of the orders or 0.
-- One text is a tenth of the work for the client than many values are.

local ttl = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%.0f', now + ttl)
local words, more = {}, {''}
local function says(outcome, text)
  words[#words + 1] = outcome
  more[#more + 1] = text
end

local state, known, base, index
for i = 1, #KEYS do
  local slot, mine = ARGV[2 * i + 1], '{"token":"' .. ARGV[2 * i + 2] .. '"'
  local mutex = slot == ''
  if KEYS[i] ~= state then -- those of one name often come one after the other
    state = KEYS[i]
    base = string.sub(state, 1, mutex and -#':slot:mutex' - 1 or -#'state' - 1)
    index = base .. 'index'
    known = redis.pcall('HMGET', state, 'slots', 'version', 'kept')
    if not known.err then
      -- A run may outlast the time after which an unused name is forgotten. One for which something is ordered is not.
      local kept = tonumber(known[3])
      if known[1] and (not kept or kept > now or now - kept > ARGV[2] / 40) then
        redis.pcall('HSET', state, 'kept', string.format('%.0f', now)) -- without memory, the next time
        if not known[2] then redis.call('PEXPIRE', state, ARGV[2]) end
        if not mutex then redis.call('PEXPIRE', index, ARGV[2]) end
      end
      for part = 1, 2 do known[part] = string.match(known[part] or '', '^%d+$') or '0' end
    end
  end
  local key = mutex and base or base .. slot
  local value = not known.err and redis.pcall('GET', key)
  if known.err then
    says('error', 'TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. known.err)
  elseif type(value) == 'table' then
    says('error', 'TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err)
  elseif not value or string.sub(value, 1, #mine) ~= mine then
    says('0')
  elseif string.sub(value, #mine + 1, #mine + 11) == ',"revoked":' then
    -- No text of an order has a quote in it that is not escaped, so the first fence is the member behind it.
    says('revoked', string.sub(value, #mine + 12, (string.find(value, ',"fence":', #mine + 12, true) or 0) - 1))
  else
    redis.call('PEXPIRE', key, ARGV[1])
    if not mutex then redis.call('ZADD', index, 'XX', ends, slot) end
    says('1')
  end
  words[#words + 1] = known[1] or '0'
  words[#words + 1] = known[2] or '0'
end
more[1] = table.concat(words, ' ')
return more
