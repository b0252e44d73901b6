-- Returns all holders of jobs: sysids of daemons, and * if workers hold some.
-- ARGV     now_ms
-- Returns  sysids
-- Errors   none
-- Cost     O(members)
register('list_members', {'no-writes'}, function()
  return About.holders()
end)
