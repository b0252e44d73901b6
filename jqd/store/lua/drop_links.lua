#!lua flags=allow-oom
-- What was done for jobs that wait for others, or that ended.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, then per entry of `links`: it, number of children that were told, these
-- Returns  number of entries of which more is to be done
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(children · log children)
--@include fail keys now links
local now_ms = clock(ARGV[1])
local FIRST, FIELDS = 2, 2

expect('links')
local entries, at = {}, FIRST
while at <= #ARGV do
  local one = {entry = ARGV[at], count = number(ARGV[at + 1], 'count'), first = at + FIELDS}
  expect_kind(children_key(one.entry:sub(2)), 'children')
  entries[#entries + 1] = one
  at = one.first + one.count
end
local left = 0
for _, one in ipairs(entries) do
  local key = children_key(one.entry:sub(2))
  for place = one.first, one.first + one.count - 1 do
    redis.call('ZADD', key, 'XX', 1, ARGV[place])
  end
  if one.entry:sub(1, 1) == 'e' and redis.call('ZCOUNT', key, 0, 0) > 0 then
    redis.call('ZADD', K.links, now_ms, one.entry)
    left = left + 1
  else
    redis.call('ZREM', K.links, one.entry)
  end
end
return left
