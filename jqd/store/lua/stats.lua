-- Numbers of jobs by where they lie, and by how they stand.
-- ARGV     now_ms
-- Returns  all, scheduled, running, ended, dead, jobtypes with jobs ready; time in ms; row of counts
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
register('stats', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])

  expect('jobs', 'types', 'later', 'ended', 'dead', 'early', 'counts')
  Holder.expect_held_keys()
  local running = 0
  for _, sysid in ipairs(call.sysids) do
    running = running + redis.call('ZCARD', held_key(sysid))
  end
  running = math.max(0, running - redis.call('HLEN', K.early))  -- early jobs have not come yet, and count when they do
  return {
    redis.call('HLEN', K.jobs), redis.call('ZCARD', K.later), running, redis.call('ZCARD', K.ended),
    redis.call('ZCARD', K.dead), redis.call('ZCARD', K.types), now_ms,
    redis.call('HGET', K.counts, 'all') or '',
  }
end)
