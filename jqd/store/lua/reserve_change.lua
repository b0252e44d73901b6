-- Returns a number for a cancel that is about to be journaled: later than any fence and change so far. Runs on a full
-- server, too: the number needs no room, and a cancel makes some.
-- ARGV     now_ms, identity of the store
-- Returns  revision
-- Errors   JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('reserve_change', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])

  Life.expect_life(ARGV[2])
  return digits(Members.next_fence(now_us))
end)
