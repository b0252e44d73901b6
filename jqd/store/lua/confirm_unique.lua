-- What became of unique keys: the jobs that have them are journaled, or will never be.
-- ARGV     now_ms, then per job: key, token, its id or nothing: it was not pushed; "waiting" or "ended"
-- Returns  per job: who has the key now; nothing: nobody
-- Errors   none
-- Cost     O(jobs)
register('confirm_unique', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local FIRST, FIELDS = 2, 4

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
    elseif not known or is_own then
      Links.give_key(key, known, id, holds, now_ms)
      known = id
    end
    answer[#answer + 1] = known or ''
  end
  return answer
end)
