#!lua flags=no-writes
-- Numbers of jobs by where they lie.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms
-- Returns  all, scheduled, running, ended, dead, jobtypes with jobs ready
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
--@include fail keys holder

expect('jobs', 'types', 'later', 'ended', 'dead', 'early')
expect_held_keys()
local running = 0
for _, sysid in ipairs(sysids) do
  running = running + redis.call('ZCARD', held_key(sysid))
end
running = math.max(0, running - redis.call('HLEN', K.early))  -- early jobs have not come yet, and count when they do
return {
  redis.call('HLEN', K.jobs), redis.call('ZCARD', K.later), running, redis.call('ZCARD', K.ended),
  redis.call('ZCARD', K.dead), redis.call('ZCARD', K.types),
}
