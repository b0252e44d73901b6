-- Returns new text in the logs of jobs, and notes that somebody watches. Their workers learn that with their next
-- sign of life.
-- ARGV     now_ms, identity of the store, ms for which the note holds, then per job: id, fence of the attempt whose log
--          is known or 0, how many bytes of it
-- Returns  per job: the row of `logs` from there on, or false: nothing is new
-- Errors   JQD_STORE_CHANGED; none after the first write
-- Cost     O(jobs · log watched), and the bytes of their logs
register('watch_logs', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local watch_ms = tonumber(ARGV[3])
  local FIRST, FIELDS = 4, 3

  Life.expect_life(ARGV[2])
  local answers = {}
  for at = FIRST, #ARGV, FIELDS do
    local id, known, ends = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local row = redis.call('HGET', K.logs, id)
    local fence, from, text = (row or ''):match('^\1(%d+) (%d+) (.*)$')
    if fence and fence == known and ends >= tonumber(from) then
      local new = text:sub(ends - from + 1)
      row = new ~= '' and '\1' .. fence .. ' ' .. string.format('%.0f', ends) .. ' ' .. new or false
    end
    answers[#answers + 1] = row
    redis.call('ZADD', K.watched, now_ms + watch_ms, id)
  end
  return answers
end)
