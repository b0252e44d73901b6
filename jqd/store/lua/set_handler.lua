#!lua
-- Sets what runs a jobtype: a new version each time. Old versions go.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, jobtype, packed handler, versions kept
-- Returns  version, 1 for the first
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(versions kept)
--@include fail keys
local jobtype, packed, kept = ARGV[2], ARGV[3], number(ARGV[4], 'kept')

expect('handlers')
-- "jobtype" → newest version, or its negative when it was deleted; "jobtype NUL version" → that version.
local version = math.abs(tonumber(redis.call('HGET', K.handlers, jobtype) or nil) or 0) + 1
redis.call('HSET', K.handlers, jobtype .. '\0' .. version, packed)
redis.call('HSET', K.handlers, jobtype, version)
redis.call('HDEL', K.handlers, jobtype .. '\0' .. (version - kept))
return version
