-- Functions for semaphores, created when the first semaphore needs them. Slots are texts. A search
-- keeps its state in one table:
--   base, index, n, limit   of the semaphore
--   gap              the index has every slot below this number
--   fresh            the index does not exist yet
--   soonest, value   set once the index was found to be full: the slot whose lease ends first among
--                    those that count, and its value
local choose, full
local function for_semaphores()
  local before = '(' .. now_text
  local function slot_of(member) -- a number, or nil for any other text in the index
    local slot = (member == '0' or find(member, '^[1-9]%d*$')) and member + 0
    return slot and slot < 10000 and slot or nil
  end
  -- Returns the lowest slot of the index in a range, and removes members that are not slots.
  local function lowest(index, from, to)
    while true do
      local found = call('ZRANGEBYSCORE', index, from, to, 'LIMIT', '0', '1')[1]
      local slot = found and slot_of(found)
      if slot or not found then return found, slot end
      call('ZREM', index, found)
    end
  end
  -- Reports whether a lease in that slot counts against the number of slots. One of our n slots
  -- always does; with an overridden limit, every slot does.
  local function counts(s, slot) return slot and (slot < s.n or s.limit > 0) end
  -- Returns the first slot that is missing in the index because it was removed by hand.
  local function missing(s)
    for i = s.gap or 0, s.n - 1 do
      s.gap = i
      if not call('ZSCORE', s.index, int(i)) then return int(i) end
    end
  end
  -- A holder trusts its lease for ttl from its last request. A lease that ends later than ttl from
  -- now was renewed before the clock was set back; it is shortened to its own ttl. Only the few
  -- leases that end last are checked. If other hosts use a longer ttl, their leases are not
  -- changed.
  local function shorten(s)
    local late = call('ZCOUNT', s.index, '(' .. int(now + ttl), '+inf')
    if late == 0 then return end
    for _, member in ipairs(call('ZRANGE', s.index, -math.min(late, 8), '-1')) do
      local key = slot_of(member) and s.base .. member
      local own = key and string.match(get(key) or '', '"ttl":(%d+)')
      if own and call('PTTL', key) > own + 0 then
        call('PEXPIRE', key, own)
        call('ZADD', s.index, int(now + own), member)
      end
    end
  end
  local function search(s)
    local index, n = s.index, s.n
    local found, slot = lowest(index, '-inf', before)
    if found and slot < n then return found end
    while found do
      found, slot = lowest(index, '1000000', before)
      if not found then break end
      if slot < n then return found end
      call('ZADD', index, found, found) -- beyond our N: mark it as released for hosts with a larger N
    end
    -- The index has slots 0 to size-1, as far as they were ever used. The next slot is new.
    local size = call('ZCARD', index)
    s.fresh = size == 0
    if size < n then
      local new = int(size)
      if s.fresh or not call('ZSCORE', index, new) then return new end
      return missing(s)
    end
    -- The index looks full. That is true only if the keys of the slots that end first exist: a key
    -- may have been deleted by hand or evicted.
    shorten(s)
    local soon = call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')
    local keys = {}
    for i = 1, #soon do keys[i] = s.base .. soon[i] end
    local values = #soon > 0 and call('MGET', unpack(keys))
    local above = false -- whether one of these slots is beyond our N
    for i = 1, #soon do
      local slot = slot_of(soon[i])
      above = above or slot and slot >= n
      if values[i] then
        if not s.value and counts(s, slot) then s.soonest, s.value = soon[i], values[i] end
      else
        if not slot then
          call('ZREM', index, soon[i])
        elseif slot < n then
          get(keys[i]) -- MGET returns nil for a key of the wrong type; get raises its error
          return soon[i]
        end
      end
    end
    -- The index is full if it has all of our slots and their leases end later. Instead of one of
    -- them it may have a slot beyond our N.
    local held = #soon
    if held == 8 and n > 8 then held = call('ZCOUNT', index, now_text, '+inf') end
    if above or held < n then return missing(s) end
    return nil
  end
  -- With an overridden limit there is room while fewer leases than the limit are held. Leases in
  -- all slots count, because the limit may have been lowered. Leases that are missing in the index
  -- are not counted. If the index was deleted by hand, the leases in slots above the limit may
  -- therefore be held in addition to the limit until they end.
  local function room(s)
    local index, last = s.index, int(s.n - 1)
    local function nth() return call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', last, '1')[1] end
    if not nth() then return true end
    shorten(s)
    for _, member in ipairs(call('ZRANGEBYSCORE', index, now_text, '+inf', 'LIMIT', '0', '8')) do
      if not slot_of(member) then -- the keys of the slots that end first may be gone: see search
        call('ZREM', index, member)
      elseif not get(s.base .. member) then
        call('ZADD', index, member, member)
      end
    end
    return not nth()
  end
  function choose(s)
    local slot = search(s)
    if slot and s.limit > 0 and not room(s) then return nil end
    return slot
  end
  function full(s, info)
    local slot, value = s.soonest, s.value
    if not slot then
      local from, page = 0, s.limit > 0 and 1 or 100
      repeat
        local soon = call('ZRANGEBYSCORE', s.index, now_text, '+inf', 'LIMIT', int(from), int(page))
        for i = 1, #soon do
          if not slot and counts(s, slot_of(soon[i])) then slot = soon[i] end
        end
        from = from + page
      until slot or #soon < page
      value = slot and get(s.base .. slot)
    end
    return 'full' .. info .. ' ' .. (slot and call('ZSCORE', s.index, slot) or now_text) .. '\n' .. (value or '')
  end
end

