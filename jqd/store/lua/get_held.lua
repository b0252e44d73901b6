#!lua flags=no-writes
-- What the store believes a daemon holds, page by page.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, fence and id after which the page begins, limit, bytes_max, most jobs under one fence
-- Returns  flat: id, fence, row or nil, tries row or nil; nothing after the last page
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(limit + jobs under one fence), and the bytes
--@include fail keys now members move
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local after_fence, after_id = number(ARGV[4], 'fence'), ARGV[5]
local limit, bytes_max, fence_jobs_max = number(ARGV[6], 'limit'), number(ARGV[7], 'bytes_max'), number(ARGV[8], 'jobs')

local held = held_key(sysid)
expect('jobs', 'tries', 'members')
expect_kind(held, 'held')
own(sysid, epoch)

-- Jobs of one fence lie side by side, ordered by id: those up to after_id were given already.
local range = redis.call(
  'ZRANGE', held, digits(after_fence), '+inf', 'BYSCORE', 'LIMIT', 0, limit + fence_jobs_max, 'WITHSCORES'
)
local ids, fences = {}, {}
for at = 1, #range, 2 do
  if #ids < limit and (tonumber(range[at + 1]) > after_fence or range[at] > after_id) then
    table.insert(ids, range[at])
    table.insert(fences, range[at + 1])
  end
end
local answer = {}
for position, row in ipairs(rows_within(ids, bytes_max)) do
  table.insert(answer, ids[position])
  table.insert(answer, fences[position])
  table.insert(answer, row)
  table.insert(answer, redis.call('HGET', K.tries, ids[position]))
end
return answer
