-- Closes a group: no job joins it any more. Drops places that were not confirmed in time: their pushes failed.
-- ARGV     now_ms, identity of the store, group, ms a place is kept
-- Returns  number of places that are not confirmed, then the ids of its members, in the order in which they came
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: members may be in a journal only
-- Cost     O(members)
register('close_group', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local identity, group, keep_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
  local CLOSED = '!'
  local key = K.grouped .. group

  Life.expect_life(identity)
  Settled.expect_restored(identity)
  redis.call('ZADD', key, 'LT', now_ms, CLOSED)
  redis.call('ZADD', K.groups, now_ms, group)
  Links.give_up_places(key, keep_ms, now_ms)
  local answer = {redis.call('ZCOUNT', key, '-inf', '(0')}
  for _, id in ipairs(redis.call('ZRANGE', key, 0, '+inf', 'BYSCORE')) do
    if id ~= CLOSED then
      answer[#answer + 1] = id
    end
  end
  return answer
end)
