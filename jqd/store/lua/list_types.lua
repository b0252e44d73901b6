#!lua flags=no-writes
-- Jobtypes that have jobs waiting or running.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit of types, limit of jobs looked at in each hand, bytes_max of their rows
-- Returns  flat: jobtype, number waiting, number running, id of the job that is next or nothing
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit · log types + members · jobs looked at)
--@include fail keys order heads pages holder move
local limit, hand_limit, bytes_max = number(ARGV[2], 'limit'), number(ARGV[3], 'hands'), number(ARGV[4], 'bytes_max')

expect('jobs', 'types')
expect_held_keys()
local running, order = {}, {}
for _, sysid in ipairs(sysids) do
  local rows = rows_within(redis.call('ZRANGE', held_key(sysid), 0, hand_limit - 1), bytes_max)
  for _, row in ipairs(rows) do
    local jobtype = row and header(row)
    if jobtype then
      running[jobtype] = (running[jobtype] or 0) + 1
    end
  end
end
local found, seen = {}, {}
local function add(jobtype)
  expect_ready(jobtype)
  local waiting = waiting_of(jobtype)
  if #found < limit * 4 and not seen[jobtype] and (waiting > 0 or running[jobtype]) then
    seen[jobtype] = true
    for _, value in ipairs({jobtype, waiting, running[jobtype] or 0, (first_waiting(jobtype)) or ''}) do
      table.insert(found, value)
    end
  end
end
for jobtype in pairs(running) do
  table.insert(order, jobtype)
end
table.sort(order)
for _, jobtype in ipairs(order) do
  add(jobtype)
end
for _, jobtype in ipairs(redis.call('ZRANGE', K.types, 0, limit - 1)) do
  add(jobtype)
end
return found
