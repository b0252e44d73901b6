-- Confirms unique keys: their jobs are journaled, or will never be.
-- ARGV     now_ms, position field and position behind these jobs, then per job: key, token, its id or nothing: it was
--          not pushed; "waiting" or "ended"
-- Returns  per job: who has the key now; nothing: nobody
-- Errors   none
-- Cost     O(jobs)
-- If the call is late, the job may have come, ended and been deleted: its key is free again.
register('confirm_unique', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local FIRST, FIELDS = 4, 4

  local has_come = (tonumber(redis.call('HGET', K.applied, ARGV[2]) or nil) or 0) >= tonumber(ARGV[3])

  local answer = {}
  for at = FIRST, #ARGV, FIELDS do
    local key, token, id, holds = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local mark, known = (redis.call('HGET', K.unique, key) or ''):match('^(~?)(%S+) ')
    local is_own = known == token or known == id
    local is_gone = id ~= '' and has_come and redis.call('HEXISTS', K.jobs, id) == 0
    if id == '' or is_gone then
      if mark == '~' and is_own then
        redis.call('HDEL', K.unique, key)
        redis.call('ZREM', K.groups, '\0' .. key)
        known = nil
      end
      known = is_gone and id or known
    elseif not known or is_own then
      Links.give_key(key, known, id, holds, now_ms)
      known = id
    end
    answer[#answer + 1] = known or ''
  end
  return answer
end)
