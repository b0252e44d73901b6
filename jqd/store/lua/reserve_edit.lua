-- Gives a number to an edit or a retry, which holds the whole job as its editor saw it: only if the job still is as the
-- editor saw it, and no other change of it is about to come. Else the edit would undo what came meanwhile.
-- ARGV     now_ms, identity of the store as the caller knows it, ttl_ms: for so long others wait for a change that does
--          not come, id, revision of the content that was seen
-- Returns  revision and the life of the store that gave it; 0 when the job is another by now, or is just being changed;
--          0 and that life when its own id is another job's: its change would take the id, and cancel that one
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(1)
register('reserve_edit', {}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, ttl_ms = ARGV[2], number(ARGV[3], 'ttl_ms')
  local id, seen = ARGV[4], number(ARGV[5], 'seen')

  Life.expect_life(identity)
  Settled.expect_settled(identity)
  local row = redis.call('HGET', K.jobs, id)
  if not row or Change.changed(id) ~= seen or Change.awaits_newer(id, row) or Change.is_awaited(id, now_ms) then
    return {'0', ''}
  end
  local name, life = Move.job_name(row), redis.call('HGET', K.life, 'id') or ''
  local named = name ~= '' and (redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) ')
  if named and named ~= id then
    return {'0', life}
  end
  local revision = digits(Members.next_fence(now_us))
  Change.await_change(id, revision, ttl_ms, now_ms)
  return {revision, life}
end)
