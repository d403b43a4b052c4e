-- Notes that a name is in use, in two sorted sets of the keys of states, from which Enumerate finds
-- all names:
--   names  ordered by name: a page begins after the last name of the previous page, whatever
--          happened in between
--   used   ordered by when the name was last noted (ms)
-- Both keys begin with shared. Every script that writes kept calls this function, so a name is
-- noted again with its first grant or extension at least a quarter of short_retention later. No
-- lease lasts longer than another quarter. So a name that was not noted for short_retention has no
-- lease and leaves both sets. Only Enumerate depends on these sets, so errors are ignored.
local function enlist(shared, state, now, now_text, short_retention)
  if shared == '' then return end
  local names, used = shared .. 'names', shared .. 'used'
  -- While a slot of a Cluster is being moved, creating a key here that is still on the other node
  -- would make the move fail. In that case MGET of the two keys fails unless both are here.
  if string.sub(shared, 1, 1) == '{' and redis.pcall('MGET', names, used).err then return end
  redis.pcall('ZADD', names, '0', state)
  redis.pcall('ZADD', used, now_text, state)
  -- Remove a few at a time: at least as many as are noted in the meantime.
  local before = string.format('(%.0f', now - short_retention)
  local old = redis.pcall('ZRANGEBYSCORE', used, '-inf', before, 'LIMIT', '0', '10')
  if #old > 0 then
    redis.pcall('ZREM', names, unpack(old))
    redis.pcall('ZREM', used, unpack(old))
  end
  redis.pcall('PEXPIRE', names, short_retention)
  redis.pcall('PEXPIRE', used, short_retention)
end
