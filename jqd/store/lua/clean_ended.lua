#!lua flags=allow-oom
-- Deletes jobs that ended before a date, the oldest first. Dead jobs stay, and jobs with a kept result.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, before_ms, limit
-- Returns  number deleted
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(limit · log ended)
--@include fail keys now counts order queues heads pages holder move stands early tries change delete
local now_ms = clock(ARGV[1])
local before_ms, limit = number(ARGV[2], 'before_ms'), number(ARGV[3], 'limit')

expect_deletable()
local ids = deletable(redis.call('ZRANGE', K.ended, '-inf', '(' .. string.format('%.0f', before_ms), 'BYSCORE', 'LIMIT', 0, limit), now_ms)
delete_jobs(ids, now_ms)
return #ids
