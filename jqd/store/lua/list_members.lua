-- Whose hands there are.
-- ARGV     now_ms
-- Returns  sysids
-- Errors   none
-- Cost     O(members)
register('list_members', {'no-writes'}, function()
  return About.hands()
end)
