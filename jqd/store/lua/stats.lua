-- Numbers of jobs by where they lie, and by how they stand.
-- ARGV     now_ms
-- Returns  all, scheduled, running, ended, dead, jobtypes with jobs ready; numbers of all jobs, of STATES, then TOTALS
--          (counts.lua)
-- Errors   none
-- Cost     O(members)
register('stats', {'no-writes'}, function()
  local running = 0
  for _, sysid in ipairs(About.hands()) do
    running = running + redis.call('ZCARD', held_key(sysid))
  end
  running = math.max(0, running - call.early)  -- early jobs have not come yet, and count when they do
  return {
    redis.call('HLEN', K.jobs), redis.call('ZCARD', K.later), running, redis.call('ZCARD', K.ended),
    redis.call('ZCARD', K.dead), redis.call('ZCARD', K.types), Counts.read(),
  }
end)
