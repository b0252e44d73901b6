#!lua flags=allow-oom
-- Undefines what runs a jobtype, in all versions. Numbers go on where they were.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, jobtype, versions kept
-- Returns  1 when there was one
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(versions kept)
--@include fail keys
local jobtype, kept = ARGV[2], number(ARGV[3], 'kept')

expect('handlers')
local newest = tonumber(redis.call('HGET', K.handlers, jobtype) or nil) or 0
if newest <= 0 then
  return 0
end
for version = math.max(1, newest - kept), newest do
  redis.call('HDEL', K.handlers, jobtype .. '\0' .. version)
end
redis.call('HSET', K.handlers, jobtype, -newest)
return 1
