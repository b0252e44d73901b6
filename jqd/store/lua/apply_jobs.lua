#!lua
-- Adds jobs from a journal and moves its position, in one step.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, position field, from, to, last field, last id, then per jobtype: jobtype, count and count times
--          (id, row, priority, eligible_at_ms or 0)
-- Returns  number of jobs that were new
-- Errors   JQD_POSITION, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(jobs · log waiting), and the bytes
--@include fail keys now position holder move early
local now_ms = clock(ARGV[1])
local field, from, to = ARGV[2], ARGV[3], ARGV[4]
local last_field, last_id = ARGV[5], ARGV[6]
local FIRST, FIELDS = 7, 4

expect('jobs', 'types', 'later', 'tries', 'ended', 'dead', 'outcome', 'tomb', 'applied', 'early')
if has_early then
  expect_held_keys()
end
if not at_position(field, from, to) then
  return 0
end
local groups, at = {}, FIRST
while at <= #ARGV do
  local jobtype, count = ARGV[at], number(ARGV[at + 1], 'count')
  if count < 1 then
    fail('JQD_ARGUMENT', 'count')
  end
  expect_kind(ready_key(jobtype), 'ready')
  for job = at + 2, at + 1 + count * FIELDS, FIELDS do
    number(ARGV[job + 2], 'priority')
    number(ARGV[job + 3], 'eligible_at_ms')
  end
  table.insert(groups, {jobtype = jobtype, first = at + 2, last = at + 1 + count * FIELDS})
  at = at + 2 + count * FIELDS
end
if at ~= #ARGV + 1 then
  fail('JQD_ARGUMENT', 'jobs')
end

local has_notes = redis.call('ZCARD', K.tomb) > 0
-- What was noted of a job before it came: returns true when that ended it, else the date of a retry or nil.
local function meet_notes(id)
  local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id)
  local ended, killed, cancelled, retried = notes[1], notes[2], notes[3], notes[4]
  if ended then
    redis.call('ZADD', K.ended, ended, id)
  elseif killed then
    redis.call('ZADD', K.dead, killed, id)
  elseif cancelled then
    end_cancelled(id, now_ms)
  end
  if ended or killed or cancelled or retried then
    redis.call('ZREM', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id)
  end
  return (ended or killed or cancelled) and true, tonumber(retried or nil)
end

-- Whether somebody said before it came that he holds it, and still does. The date of an earlier retry is moot then; a
-- cancel asked for meanwhile stays noted.
local function meet_hold(id)
  local sysid = early_holder(id)
  if not sysid then
    return false
  end
  drop_early(id)
  if not redis.call('ZSCORE', held_key(sysid), id) then
    return false
  end
  redis.call('ZREM', K.tomb, 'r' .. id)
  return true
end

-- Sets first, rows second, position last: were this ever cut short, applying it again would find the rows missing.
local added = 0
for _, group in ipairs(groups) do
  local ready, later, rows, best = {}, {}, {}, nil
  for job = group.first, group.last, FIELDS do
    local id, row, priority, eligible_at_ms = ARGV[job], ARGV[job + 1], ARGV[job + 2], tonumber(ARGV[job + 3])
    if redis.call('HEXISTS', K.jobs, id) == 0 then
      local over, retry_at_ms = meet_hold(id), nil
      if has_notes and not over then
        over, retry_at_ms = meet_notes(id)
      end
      eligible_at_ms = math.max(eligible_at_ms, retry_at_ms or 0)
      if over then
        -- it lies among the ended already, or in a hand
      elseif eligible_at_ms > now_ms then
        table.insert(later, eligible_at_ms)
        table.insert(later, id)
      else
        table.insert(ready, priority)
        table.insert(ready, id)
        best = math.min(best or math.huge, tonumber(priority))
      end
      table.insert(rows, id)
      table.insert(rows, row)
      added = added + 1
    end
  end
  if #later > 0 then
    redis.call('ZADD', K.later, unpack(later))
  end
  if #ready > 0 then
    redis.call('ZADD', ready_key(group.jobtype), unpack(ready))
    redis.call('ZADD', K.types, 'LT', best, group.jobtype)
  end
  if #rows > 0 then
    redis.call('HSET', K.jobs, unpack(rows))
  end
end
if last_id ~= '' and last_id > (redis.call('HGET', K.applied, last_field) or '') then
  redis.call('HSET', K.applied, last_field, last_id)
end
redis.call('HSET', K.applied, field, to)
return added
