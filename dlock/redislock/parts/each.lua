-- Calls work for each of n names with the name's KEYS[i] and three arguments, starting at ARGV[3 *
-- i + from], and returns {head, answer for each name …}. An error affects only its own name. The
-- exception is READONLY: it must be the whole reply, otherwise the driver would keep the connection
-- to a replica.
local function each(head, n, from, work)
  local answers = {head}
  for i = 1, n do
    local fine, answer = pcall(work, KEYS[i], ARGV[3 * i + from], ARGV[3 * i + from + 1], ARGV[3 * i + from + 2])
    if not fine then
      local why = type(answer) == 'table' and answer.err or tostring(answer)
      if string.find(why, '^READONLY ') or string.find(why, '^@user_script: ?%d+: %-?READONLY ') then
        return redis.error_reply(why)
      end
      answer = 'error\n' .. why
    end
    answers[i + 1] = answer
  end
  return answers
end
