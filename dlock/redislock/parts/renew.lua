-- Makes a lease last ttl from now. Its value ends with the ttl. The ttl and the remaining time of
-- the key tell when the lease was renewed. told is that end of the value. A value with another ttl
-- is written again. If the server is out of memory, the value cannot be written. Then the lease is
-- extended only if ttl is no longer than the ttl in the value, because other hosts would shorten it
-- (see shorten in slots.lua). Otherwise renew returns the error.
local function renew(key, value, ttl, told)
  if string.sub(value, -#told) ~= told then
    local own = tonumber(string.match(value, ',"ttl":(%d+)}$'))
    value = string.gsub(value, ',"ttl":%d+}$', told)
    local written = redis.pcall('SET', key, value, 'XX', 'PX', ttl)
    if type(written) == 'table' and written.ok then return end
    if own and ttl + 0 > own then return type(written) == 'table' and written.err or 'the lease is gone' end
  end
  redis.call('PEXPIRE', key, ttl)
end
