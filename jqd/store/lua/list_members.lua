-- Whose hands there are.
-- ARGV     now_ms
-- Returns  sysids
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
register('list_members', {'no-writes'}, function()
  expect('members')
  return About.hands()
end)
