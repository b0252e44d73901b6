#!lua flags=no-writes
-- Which jobtypes have jobs ready, best first, by name only.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit
-- Returns  jobtypes
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit)
--@include fail keys

expect('types')
return redis.call('ZRANGE', K.types, 0, number(ARGV[2], 'limit') - 1)
