-- Numbers are written in full: Lua's own conversion gives 1.79e+15.
local function int(x) return string.format('%.0f', x) end
-- A stored value counts as a number only where arithmetic is exact: below 2^53.
local function count(x)
  x = x and tonumber(x)
  return x and x >= 0 and x < 9007199254740992 and x or 0
end
