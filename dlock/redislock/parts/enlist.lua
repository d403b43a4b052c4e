-- Notes that a name is in use, in two sorted sets of the keys of states, with which Enumerate finds
-- all names:
--   names  in their own order: a page begins behind the last name of the one before, whatever
--          happened meanwhile
--   used   by when they were noted last (ms)
-- shared is what both keys begin with. Whoever writes kept calls this, so a name is noted again
-- with the first grant or extension that comes a quarter of short_retention after. No lease lasts
-- longer than another quarter, so names that were not noted for short_retention have none, and
-- leave both sets. Nothing but Enumerate depends on this, so errors are ignored.
local function enlist(shared, state, now, now_text, short_retention)
  if shared == '' then return end
  local names, used = shared .. 'names', shared .. 'used'
  -- While a slot of a Cluster is being moved, a key must not be made here that is still on the
  -- other node, or the move would fail. MGET is an error then, and only then, unless both are here.
  if string.sub(shared, 1, 1) == '{' and redis.pcall('MGET', names, used).err then return end
  redis.pcall('ZADD', names, '0', state)
  redis.pcall('ZADD', used, now_text, state)
  -- A few at a time: as many as are noted meanwhile, or more.
  local before = string.format('(%.0f', now - short_retention)
  local old = redis.pcall('ZRANGEBYSCORE', used, '-inf', before, 'LIMIT', '0', '10')
  if #old > 0 then
    redis.pcall('ZREM', names, unpack(old))
    redis.pcall('ZREM', used, unpack(old))
  end
  redis.pcall('PEXPIRE', names, short_retention)
  redis.pcall('PEXPIRE', used, short_retention)
end
