-- Returns numbers of jobs by place and by state.
-- ARGV     now_ms
-- Returns  all, scheduled, running, ended, dead, jobtypes with ready jobs; numbers of all jobs: STATES, then TOTALS
--          (counts.lua)
-- Errors   none
-- Cost     O(members)
register('stats', {'no-writes'}, function()
  local running = 0
  for _, sysid in ipairs(About.holders()) do
    running = running + redis.call('ZCARD', held_key(sysid))
  end
  running = math.max(0, running - call.early)  -- jobs that have not come yet are not counted
  return {
    redis.call('HLEN', K.jobs), redis.call('ZCARD', K.later), running, redis.call('ZCARD', K.ended),
    redis.call('ZCARD', K.dead), redis.call('ZCARD', K.types), Counts.read(),
  }
end)
