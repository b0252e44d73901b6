#!lua flags=no-writes
-- Whose hands there are.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms
-- Returns  sysids
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
--@include fail keys holder

expect_held_keys()
return sysids
