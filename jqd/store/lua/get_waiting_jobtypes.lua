#!lua flags=no-writes
-- Which jobtypes have jobs ready.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit, then the jobtypes to look at; without any, the best `limit` of all
-- Returns  flat: jobtype, best priority, id of its oldest job, number waiting, 1 when that job may only run alone; in no
--          order when jobtypes are given
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit) or O(jobtypes given)
--@include fail keys order pages deaths
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
  expect_ready(jobtype)
  local id, priority = first_waiting(jobtype)
  if id then
    table.insert(found, jobtype)
    table.insert(found, priority)
    table.insert(found, id)
    table.insert(found, waiting_of(jobtype))
    table.insert(found, is_suspect(id) and 1 or 0)
  end
end
return found
