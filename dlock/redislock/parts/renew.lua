-- Makes a lease last ttl from now. Its value ends with the ttl, which tells, with the time that its
-- key has left, when it was renewed. told is that end. A value with another ttl is written again.
-- If the server is out of memory, a lease is renewed without that, but not for longer than its
-- value says, because others would shorten it (see shorten in slots.lua): then renew returns the
-- error.
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
