-- Makes a lease last ttl from now. Its value ends with the ttl, which tells, with the time that its
-- key has left, when it was renewed. told is that end. A value with another ttl, or of a version
-- that wrote none, is written again, unless the server is out of memory.
local function renew(key, value, ttl, told)
  if string.sub(value, -#told) ~= told and string.sub(value, -1) == '}' then
    value = string.gsub(value, ',"ttl":%d+}$', '}')
    local written = redis.pcall('SET', key, string.sub(value, 1, -2) .. told, 'XX', 'PX', ttl)
    if type(written) == 'table' and written.ok then return end
  end
  redis.call('PEXPIRE', key, ttl)
end
