#!lua flags=allow-oom
-- Gives a number to a cancel that is about to be journaled: later than any fence and change so far. A full server gives it, too:
-- the number takes no room, and a cancel makes some.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it
-- Returns  revision
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
--@include fail keys now members life
local _, now_us = clock(ARGV[1])

expect('fence', 'life')
expect_life(ARGV[2])
return digits(next_fence(now_us))
