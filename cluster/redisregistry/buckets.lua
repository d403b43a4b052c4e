-- Buckets: returns the aggregated runs of a timer.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  <length>:<timer>
-- then, for each kind of bucket: its letter, its span in µs, the number of spans to return
--
-- Returns {now µs, {span …}}; a missing span is nil

local found = {}
for i = 2, #ARGV, 3 do
  local last, fields = math.floor(now / ARGV[i + 1]), {}
  for n = last - ARGV[i + 2], last do fields[#fields + 1] = ARGV[1] .. ':' .. ARGV[i] .. int(n) end
  local spans = call('HMGET', buckets, unpack(fields))
  for j = 1, #spans do
    if spans[j] then found[#found + 1] = ARGV[i] .. spans[j] end
  end
end
return {int(now), found}
