-- Returns a number for an edit or a retry, which brings the whole job as its editor saw it: so only if the job is still
-- like that, and no other change of it is to come. Otherwise the edit would undo what came meanwhile.
-- ARGV     now_ms, identity of the store, ttl_ms: how long others wait for this change, id, revision of the content
--          that was seen
-- Returns  revision and the life of the store; 0: the job was changed, or a change is to come; 0 and that life: its own
--          id is another job's, which the change would cancel
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('reserve_edit', {}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, ttl_ms = ARGV[2], tonumber(ARGV[3])
  local id, seen = ARGV[4], tonumber(ARGV[5])

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
