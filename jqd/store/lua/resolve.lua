#!lua flags=no-writes
-- The job a pusher's own id stands for.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, name
-- Returns  id, or nil: no job has that name, or the job is deleted
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: a job may have that name, JQD_WRONG_TYPE, JQD_BAD_VALUE
-- Cost     O(members)
--@include fail keys now members life settled

local identity, name = ARGV[2], ARGV[3]

expect('names', 'life', 'members')
expect_life(identity)
local row = redis.call('HGET', K.names, name)
if not row then
  expect_settled(identity)
end
return row and row:match('^%d+ (%S+) ')
