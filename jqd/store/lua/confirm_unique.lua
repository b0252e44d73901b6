-- What became of unique keys: the jobs that have them are journaled, or will never be.
-- ARGV     now_ms, "learn": they come from a journal, whatever was known here; or nothing; then per job: key, token or nothing, its id or nothing: it was
--          not pushed; "waiting" or "ended"
-- Returns  per job: who has the key now; nothing: nobody
-- Errors   none
-- Cost     O(jobs)
register('confirm_unique', {'allow-oom'}, function()
  local now_ms, is_learning = clock(ARGV[1]), ARGV[2] == 'learn'
  local FIRST, FIELDS = 3, 4

  local answer = {}
  for at = FIRST, #ARGV, FIELDS do
    local key, token, id, holds = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local mark, known = (redis.call('HGET', K.unique, key) or ''):match('^(~?)(%S+) ')
    local is_own = known == token or known == id
    if id == '' then
      if mark == '~' and is_own then
        redis.call('HDEL', K.unique, key)
        redis.call('ZREM', K.groups, '\0' .. key)
        known = nil
      end
    -- Of two jobs in journals the later one has it: it was taken when the earlier had ended.
    elseif not known or is_own or is_learning and known < id then
      if known and redis.call('HEXISTS', K.jobs, known) == 0 then
        redis.call('ZREM', K.linked, known)
      end
      redis.call('HSET', K.unique, key, id .. ' ' .. digits(now_ms) .. ' ' .. holds)
      redis.call('ZADD', K.linked, 0, id)
      redis.call('ZREM', K.groups, '\0' .. key)
      known = id
    end
    answer[#answer + 1] = known or ''
  end
  return answer
end)
