-- Runs: returns the last runs of a timer, newest first.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  <length>:<timer>    ARGV[2]  maximum number of runs to return
--
-- Returns {now µs, {run row …}}; a missing row is nil

local ids = call('ZRANGE', timers, '(' .. ARGV[1] .. ':', '[' .. ARGV[1], 'BYLEX', 'REV', 'LIMIT', 0, ARGV[2])
for i = 1, #ids do ids[i] = run_id(ids[i]) end
return {int(now), #ids > 0 and call('HMGET', runs, unpack(ids)) or {}}
