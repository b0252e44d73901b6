#!lua flags=allow-oom
-- Forgets a kept result.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, id
-- Returns  1 when there was one
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(log results)
--@include fail keys
local id = ARGV[2]

expect('result', 'results')
local dropped = redis.call('HDEL', K.result, id)
redis.call('ZREM', K.results, id)
return dropped
