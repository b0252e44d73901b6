#!lua flags=allow-oom
-- Says how fast jobs age at a daemon, which must be the same at all.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, period_ms
-- Returns  flat, of the living daemons where it is another: sysid, period_ms, 0 where they do not age
-- Errors   JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(members)
--@include fail keys now members period
expect('aged', 'members')
return say_period(ARGV[2], number(ARGV[3], 'period_ms'))
