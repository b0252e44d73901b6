-- Whose hands there are.
-- ARGV     now_ms
-- Returns  sysids
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
register('list_members', {'no-writes'}, function()
  Holder.expect_held_keys()
  return call.sysids
end)
