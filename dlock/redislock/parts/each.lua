-- Calls work for each of n names, with its KEYS[i] and three arguments, the first of which is ARGV[from + 3], and returns {head, answer of each …}.
-- What is wrong with one is its own affair. But a replica has to say what it is itself, or the driver would keep the connection.
local function each(head, n, from, work)
  local answers = {head}
  for i = 1, n do
    local fine, answer = pcall(work, KEYS[i], ARGV[3 * i + from], ARGV[3 * i + from + 1], ARGV[3 * i + from + 2])
    if not fine then
      local why = type(answer) == 'table' and answer.err or tostring(answer)
      if string.find(why, '^READONLY ') or string.find(why, '^@user_script: ?%d+: %-?READONLY ') then return redis.error_reply(why) end
      answer = 'error\n' .. why
    end
    answers[i + 1] = answer
  end
  return answers
end
