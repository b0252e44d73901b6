-- The job a pusher's own id stands for.
-- ARGV     now_ms, identity of the store as the caller knows it, name, 1: not if it is only reserved, by a push that did not come in time
-- Returns  id, or nil: no job has that name, or the job is deleted
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: a job may have that name, JQD_WRONG_TYPE, JQD_BAD_VALUE
-- Cost     O(members)
register('resolve', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])
  local identity, name, promised = ARGV[2], ARGV[3], ARGV[4] == '1'

  expect('names', 'life', 'members')
  Life.expect_life(identity)
  local row = redis.call('HGET', K.names, name)
  local id, until_ms = (row or ''):match('^%d+ (%S+) (%d+) ')
  if promised and until_ms and until_ms ~= '0' and tonumber(until_ms) <= now_ms then
    id = nil
  end
  if not id then
    Settled.expect_settled(identity)
  end
  return id
end)
