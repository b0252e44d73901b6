#!lua flags=no-writes
-- Which jobtypes have jobs ready.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit, then the jobtypes to look at; without any, the best `limit` of all
-- Returns  flat: jobtype, best priority, id of its oldest job, number waiting, 1 when that job may only run alone; in no
--          order when jobtypes are given
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit) or O(jobtypes given)
--@include fail keys deaths
local limit = number(ARGV[2], 'limit')
local FIRST = 3

expect('types', 'deaths')
local jobtypes = {}
if #ARGV >= FIRST then
  jobtypes = {unpack(ARGV, FIRST)}
else
  jobtypes = redis.call('ZRANGE', K.types, 0, limit - 1)
end
local found = {}
for _, jobtype in ipairs(jobtypes) do
  local key = ready_key(jobtype)
  expect_kind(key, 'ready')
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] then
    table.insert(found, jobtype)
    table.insert(found, head[2])
    table.insert(found, head[1])
    table.insert(found, redis.call('ZCARD', key))
    table.insert(found, is_suspect(head[1]) and 1 or 0)
  end
end
return found
