#!lua flags=allow-oom
-- Forgets a kept result.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, id
-- Returns  1 when there was one
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(log results)
--@include fail keys results
local id = ARGV[2]

results.expect()
local is_there = redis.call('HEXISTS', K.result, id)
results.drop({id})
return is_there
