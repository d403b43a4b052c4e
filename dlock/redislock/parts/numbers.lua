-- Formats a number in full: Lua's own conversion gives 1.79e+15.
local function int(x) return string.format('%.0f', x) end
-- Returns a stored value as a number. A value outside 0 … 2^53-1, where arithmetic is exact, counts
-- as 0.
local function count(x)
  x = x and tonumber(x)
  return x and x >= 0 and x < 9007199254740992 and x or 0
end
