-- Reserves places in an open group for jobs that are about to be pushed; confirm_members confirms them. Drops places
-- that were not confirmed in time.
-- ARGV     now_ms, identity of the store, group, ms a place is kept, most members, then a token per job
-- Returns  1; 0: it is closed, 2: it would have too many members; then nobody joined
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: members may be in a journal only
-- Cost     O(jobs · log members)
register('join_group', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local identity, group, keep_ms, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
  local FIRST, CLOSED = 6, '!'
  local key = K.grouped .. group

  Life.expect_life(identity)
  Settled.expect_settled(identity)
  Links.give_up_places(key, keep_ms, now_ms)
  if redis.call('ZSCORE', key, CLOSED) then
    return 0
  elseif redis.call('ZCARD', key) + #ARGV - FIRST + 1 > most then
    return 2
  end
  for at = FIRST, #ARGV do
    redis.call('ZADD', key, 'GT', -now_ms, ARGV[at])
  end
  redis.call('ZADD', K.groups, now_ms, group)
  return 1
end)
