-- Revoke: marks a lease as revoked, right after its token, so that extend.lua finds the mark.
-- Nothing else changes, and the expiry stays.
--
-- KEYS[1] state: only determines the node of a Cluster
-- ARGV[1] key of the slot   ARGV[2] fence   ARGV[3] origin (JSON)
--
-- Returns 1, or 0 if no lease with that fence is held

local key = ARGV[1]
local value = redis.pcall('GET', key)
if type(value) == 'table' then
  return redis.error_reply(no_lease(key, value.err))
end
local head, rest = string.match(value or '', '^({"token":"[^"]*")(,".*)$')
if not head then return 0 end
local revoked = string.sub(rest, 1, 11) == ',"revoked":' -- the first revocation is reported
-- Quotes in the texts of an origin are escaped: see extend.lua.
local from = revoked and string.find(rest, ',"fence":', 12, true) or 1
if string.match(rest, '^,"fence":(%d+)', from) ~= ARGV[2] then return 0 end
if revoked then return 1 end
return redis.call('SET', key, head .. ',"revoked":' .. ARGV[3] .. rest, 'XX', 'KEEPTTL') and 1 or 0
