-- Buckets: what the runs of a timer add up to.
--
-- KEYS     see parts/common.lua
-- ARGV[1]  <length>:<timer>
-- and then, of each sort of bucket: a letter, its span in µs, how many spans to return
--
-- Returns {now µs, {span …}}; a span may be nil

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
