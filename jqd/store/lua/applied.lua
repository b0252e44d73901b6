#!lua flags=allow-oom
-- Where the lanes of a journal stand; makes the journal known, so that its ids are "on their way" from now on.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, last field, then position fields
-- Returns  one position per position field, nil for a lane never applied
-- Errors   JQD_WRONG_TYPE
-- Cost     O(fields)
--@include fail keys
local last_field = ARGV[2]
local FIRST = 3

expect('applied')
redis.call('HSETNX', K.applied, last_field, '')
return redis.call('HMGET', K.applied, unpack(ARGV, FIRST))
