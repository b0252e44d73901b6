#!lua flags=allow-oom
-- No job joins the group any more.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, group
-- Returns  the ids of its members, in the order in which they came
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members)
--@include fail keys now
local now_ms = clock(ARGV[1])
local group = ARGV[2]
local CLOSED = '!'
local key = K.grouped .. group

expect('groups')
expect_kind(key, 'grouped')
redis.call('ZADD', key, 'LT', now_ms, CLOSED)
redis.call('ZADD', K.groups, now_ms, group)
local ids = {}
for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
  if id ~= CLOSED then
    ids[#ids + 1] = id
  end
end
return ids
