-- Makes a lease last ttl from now. Its value ends with the ttl, which tells, with the time that its
-- key has left, when it was renewed. told is that end. A value with another ttl is written again,
-- unless the server is out of memory.
local function renew(key, value, ttl, told)
  if string.sub(value, -#told) ~= told then
    value = string.gsub(value, ',"ttl":%d+}$', told)
    local written = redis.pcall('SET', key, value, 'XX', 'PX', ttl)
    if type(written) == 'table' and written.ok then return end
  end
  redis.call('PEXPIRE', key, ttl)
end
