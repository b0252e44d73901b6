#!lua flags=allow-oom
-- Tells since when a journal keeps the jobs that it may have applied again, and shows what all journals told.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, journal id, fence: all jobs it keeps were written after it
-- Returns  a new fence, the fence at which this life of the store began, then flat: journal id, fence it told last (which only grows), fence at which it told that
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(journals)
--@include fail keys now members life kept
local _, now_us = clock(ARGV[1])
local journal, since = ARGV[3], number(ARGV[4], 'since')

expect('applied', 'fence', 'life')
expect_life(ARGV[2])
local present = next_fence(now_us)
tell_kept(journal, math.max(since, (kept_since(journal))), present)
local answer, rows = {digits(present), redis.call('HGET', K.life, 'high') or '0'}, redis.call('HGETALL', K.applied)
for at = 1, #rows, 2 do
  local id = rows[at]:match('^(.*):kept$')
  if id then
    local told_since, told_at = kept_since(id)
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = id, digits(told_since), digits(told_at)
  end
end
return answer
