-- Update: changes the overrides of a semaphore. An empty argument leaves its part unchanged.
--
-- KEYS[1] state   see acquire.lua. Its overrides: version; until (µs: end of the pause; kept after
--         the pause, 0 if the pause was ended early); resumed (µs: when a pause, or a limit of 0,
--         was last ended); pause (JSON); limit (-1: as requests declare); limit_order (JSON);
--         trigger (JSON); at (µs: of the trigger); value. The state does not expire after the first
--         update
-- ARGV[1] pause   µs from now; 0: resume    ARGV[2] its origin
-- ARGV[3] limit   ARGV[4] its origin
-- ARGV[5] trigger
-- ARGV[6] other   ARGV[7] form: see acquire.lua
-- ARGV[8] value   ARGV[9] the version that the state must have; '': no value is set
--
-- Returns the version, or 0 if the version is not ARGV[9] and nothing was changed

local state = KEYS[1]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]

local known = redis.pcall('HMGET', state, 'version', 'until', 'limit')
if known.err then
  return redis.error_reply(no_state(state, known.err))
end
-- Hosts that use the other form of the keys would never see the change.
local theirs = not redis.call('HGET', state, 'form') and redis.pcall('HGET', ARGV[6], 'form')
if type(theirs) == 'table' and ARGV[7] == 'plain' then return theirs end -- see acquire.lua
if type(theirs) == 'string' and theirs ~= ARGV[7] then
  return redis.error_reply(other_form(ARGV[6]))
end
if ARGV[9] ~= '' and count(known[1]) ~= tonumber(ARGV[9]) then return 0 end
local version = int(math.max(count(known[1]) + 1, micros))
local changes = {'version', version}
local function change(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
local paused = count(known[2])
local function resumed(origin)
  change('resumed', int(micros))
  change('pause', origin)
end
if ARGV[1] ~= '' then
  local length = tonumber(ARGV[1])
  if length > 0 then
    paused = micros + length
    change('until', int(paused))
    change('pause', ARGV[2])
  elseif micros < paused then
    paused = micros
    -- not now: if the clock is ahead and is set back, that would be a pause again
    change('until', '0')
    resumed(ARGV[2])
  end
end
if ARGV[3] ~= '' then
  -- A tick that came due under a limit of 0 was not missed either.
  if known[3] == '0' and ARGV[3] ~= '0' and paused < micros then
    resumed(ARGV[4])
  end
  change('limit', ARGV[3])
  change('limit_order', ARGV[4])
end
if ARGV[5] ~= '' then
  change('trigger', ARGV[5])
  change('at', version) -- later than the last trigger, even if the clock was set back
end
if ARGV[9] ~= '' then
  change('value', ARGV[8])
end
redis.call('HSET', state, unpack(changes))
redis.call('PERSIST', state)
return version
