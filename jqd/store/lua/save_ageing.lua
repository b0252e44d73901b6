-- Saves how fast jobs age at a daemon, which must be the same at all.
-- ARGV     now_ms, sysid, period_ms
-- Returns  flat, the living daemons with another period: sysid, period_ms (0: jobs do not age)
-- Errors   JQD_BAD_VALUE
-- Cost     O(members)
register('save_ageing', {'allow-oom'}, function()
  return Ageing.say_period(ARGV[2], tonumber(ARGV[3]))
end)
