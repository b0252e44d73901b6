#!lua flags=no-writes
-- The job a pusher's own id stands for.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, name
-- Returns  id, or nil: nobody gave that name to a job, or the job is deleted
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE
-- Cost     O(1)
--@include fail keys life

expect('names', 'life')
expect_life(ARGV[2])
local row = redis.call('HGET', K.names, ARGV[3])
return row and row:match('^%d+ (%S+) ')
