-- Returns the prefix of a name's lease keys, derived from the key of its state: see acquire.lua.
local function base_of(state, mutex)
  return string.sub(state, 1, mutex and -#':slot:mutex' - 1 or -#'state' - 1)
end
-- Texts of errors about a key. The server's own error follows a tab.
local function no_state(key, said) return 'TICKSLOT key ' .. key .. ' does not hold the state of a lock:\t' .. said end
local function no_lease(key, said) return 'TICKSLOT key ' .. key .. ' does not hold a lease:\t' .. said end
local function other_form(key)
  return 'TICKSLOT key ' .. key .. ' shows that other hosts use the other form of the keys: '
    .. 'set the same Options.Keys everywhere, or delete that key'
end
