#!lua flags=allow-oom
-- What was done for a job that waits for others, or that ended.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, the entry of `links`, then the children that were told, if it is "e<id>"
-- Returns  1 when it is done, 0 when there are more children to be told
-- Errors   JQD_WRONG_TYPE
-- Cost     O(children · log children)
--@include fail keys now links
local now_ms = clock(ARGV[1])
local entry = ARGV[2]

expect('links')
local key = children_key(entry:sub(2))
expect_kind(key, 'children')
for at = 3, #ARGV do
  redis.call('ZADD', key, 'XX', 1, ARGV[at])
end
if entry:sub(1, 1) == 'e' and redis.call('ZCOUNT', key, 0, 0) > 0 then
  redis.call('ZADD', K.links, now_ms, entry)
  return 0
end
redis.call('ZREM', K.links, entry)
return 1
