#!lua flags=no-writes
-- The members of a group.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, group, how many members are told, the first ones; 0: all
-- Returns  when it was closed (ms) or nothing, then the ids of its members in the order in which they came; nil when there is no such group
-- Errors   JQD_WRONG_TYPE
-- Cost     O(members told)
--@include fail keys now
local key, CLOSED = K.grouped .. ARGV[2], '!'
local most = number(ARGV[3], 'most')

expect_kind(key, 'grouped')
if redis.call('EXISTS', key) == 0 then
  return false
end
local answer = {redis.call('ZSCORE', key, CLOSED) or ''}
for _, id in ipairs(redis.call('ZRANGE', key, 0, '+inf', 'BYSCORE', 'LIMIT', 0, most > 0 and most + 1 or -1)) do
  if id ~= CLOSED and (most == 0 or #answer <= most) then
    answer[#answer + 1] = id
  end
end
return answer
