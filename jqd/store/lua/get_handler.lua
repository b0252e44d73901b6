#!lua flags=no-writes
-- What runs a jobtype.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, jobtype, version or 0 for the newest
-- Returns  version, packed handler; nothing when there is none, or that version is gone
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(1)
--@include fail keys
local jobtype, version = ARGV[2], number(ARGV[3], 'version')

expect('handlers')
local newest = tonumber(redis.call('HGET', K.handlers, jobtype) or nil) or 0
if version == 0 then
  version = newest
end
local packed = version > 0 and redis.call('HGET', K.handlers, jobtype .. '\0' .. version)
return packed and {version, packed} or {}
