-- Release: end leases, if their tokens still hold them.
--
-- KEYS[i] state of the name of the i-th lease, see acquire.lua. On a Cluster all are one
-- ARGV[1] idle, ms
-- ARGV[2…] of each lease: slot, '' for a mutex, -1 for whichever the token holds; token; 1 if the work ended well, else 0
--
-- Returns {'', answer for each lease …}, an answer being two words, outcome (1: released; 0: lost) and slots as declared, or {'error', what is wrong}

local function release(state, slot, token, well)
  local mutex = slot == ''
  local base = string.sub(state, 1, mutex and -#':slot:mutex' - 1 or -#'state' - 1)
  local mine = '{"token":"' .. token .. '"'
  local slots = redis.pcall('HGET', state, 'slots')
  if type(slots) == 'table' then
    error('TICKSLOT key ' .. state .. ' does not hold the state of a lock: ' .. slots.err, 0)
  end
  local function note(field, value)
    -- The state may be a new one, and one for which nothing is ordered has an end.
    if redis.call('HSET', state, field, value) > 0 and not redis.call('HGET', state, 'version') then redis.call('PEXPIRE', state, ARGV[1]) end
  end
  if slot == '-1' then slot = redis.call('ZSCORE', base .. 'tokens', token) end
  local key = slot and base .. slot
  local value = key and redis.pcall('GET', key)
  if type(value) == 'table' then
    error('TICKSLOT key ' .. key .. ' does not hold a lease: ' .. value.err, 0)
  end
  local released = value and string.sub(value, 1, #mine) == mine
  if released then
    redis.call('DEL', key) -- first of all: a server without memory lets a script write only after that
    if mutex then
      note('released', '1')
    else
      redis.call('ZADD', base .. 'index', 'XX', slot, slot)
      redis.call('ZREM', base .. 'tokens', token)
    end
    if well == '1' then
      local time = redis.call('TIME')
      note('success', time[1] .. string.sub('00000' .. time[2], -6))
    end
  end
  return (released and '1 ' or '0 ') .. (slots or '0')
end

local answers = {''}
for i = 1, #KEYS do
  local fine, answer = pcall(release, KEYS[i], ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1])
  if not fine then
    local why = type(answer) == 'table' and answer.err or tostring(answer)
    -- What is wrong with one is its own affair. But a replica has to say what it is itself, or the driver would keep the connection.
    if string.find(why, 'READONLY', 1, true) then return redis.error_reply(why) end
    answer = {'error', why}
  end
  answers[i + 1] = answer
end
return answers
