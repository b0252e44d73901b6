#!lua flags=allow-oom
-- What became of the parents of jobs that wait for them.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, "new": all that was noted of this child is void; "all": and its parents are that many, which are all; "": nothing of both; number of
--          parents or nothing, then per note: child, parent, how it ended, or nothing
-- Returns  per child, flat, in the order of their first notes: child, 1 when all its parents have ended, the first that did not succeed or nothing
-- Errors   JQD_WRONG_TYPE
-- Cost     O(notes)
--@include fail keys links
local what, size = ARGV[2], ARGV[3]
local FIRST, FIELDS = 4, 3

expect('linked')
local children, known = {}, {}
for at = FIRST, #ARGV, FIELDS do
  local child = ARGV[at]
  if not known[child] then
    known[child], children[#children + 1] = true, child
    expect_kind(parents_key(child), 'parents')
  end
end
for _, child in ipairs(children) do
  if what == 'new' then
    redis.call('UNLINK', parents_key(child))
    redis.call('ZADD', K.linked, 0, child)
  elseif what == 'all' then
    redis.call('HSET', parents_key(child), '@', size)
  end
end
for at = FIRST, #ARGV, FIELDS do
  if ARGV[at + 1] ~= '' then
    note_parent(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
end
local answer = {}
for _, child in ipairs(children) do
  local done, failed = has_parents_ended(child)
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = child, done, failed
end
return answer
