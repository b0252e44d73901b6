-- Reserves unique keys for jobs that are about to be pushed, unless a living job has them.
-- ARGV     now_ms, identity of the store, ms a key is kept for a push, or a job, that is not here: a journal may have
--          it; then per job: key, token, "waiting": the job has the key until it begins, or "ended"
-- Returns  per job: its token; else the id of the job that has the key; "~" and the token of a push under way
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: a journal may know who has a key
-- Cost     O(jobs · members)
register('reserve_unique', {}, function()
  local now_ms = clock(ARGV[1])
  local identity = ARGV[2]
  local ttl_ms = tonumber(ARGV[3])
  local FIRST, FIELDS = 4, 3

  Life.expect_life(identity)
  Settled.expect_restored(identity)

  -- Returns whether a key is still taken. One that was taken later than now was so while the clock was ahead.
  local function lives(mark, id, given_ms, holds)
    local _, how = Stands.how_stands(mark == '' and id or '')
    if not how then
      return math.abs(now_ms - given_ms) < ttl_ms
    end
    return not Counts.ENDED[how] and (holds == 'ended' or how ~= 'running')
  end

  local answer = {}
  for at = FIRST, #ARGV, FIELDS do
    local key, token, holds = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local mark, known, given_ms, its_holds = (redis.call('HGET', K.unique, key) or ''):match('^(~?)(%S+) (%d+) (%a+)$')
    if known and known ~= token and lives(mark, known, tonumber(given_ms), its_holds) then
      answer[#answer + 1] = mark .. known
    else
      Links.leave_key(known)
      redis.call('HSET', K.unique, key, '~' .. token .. ' ' .. digits(now_ms) .. ' ' .. holds)
      redis.call('ZADD', K.groups, now_ms, '\0' .. key)
      answer[#answer + 1] = token
    end
  end
  return answer
end)
