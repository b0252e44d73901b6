#!lua flags=allow-oom
-- Jobs become members of a group that is open.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, group, most members, then ids
-- Returns  1; 0 when it is closed, 2 when it would have too many members: nothing was done then
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(ids · log members)
--@include fail keys now
local now_ms = clock(ARGV[1])
local group, most = ARGV[2], number(ARGV[3], 'most')
local FIRST, CLOSED = 4, '!'
local key = K.grouped .. group

expect('groups')
expect_kind(key, 'grouped')
if redis.call('ZSCORE', key, CLOSED) then
  return 0
elseif redis.call('ZCARD', key) + #ARGV - FIRST + 1 > most then
  return 2
end
for at = FIRST, #ARGV do
  redis.call('ZADD', key, 'LT', now_ms, ARGV[at])
end
redis.call('ZADD', K.groups, now_ms, group)
return 1
