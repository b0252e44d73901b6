#!lua flags=allow-oom
-- What is to be done next for jobs that wait for others. Others find it again only when `rest_ms` have passed.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit, children_max, rest_ms
-- Returns  ms until more is due, or nothing; number of jobs that have to do with others; until when (ms) these entries rest; then per entry: the entry; of "w<id>": the row, nothing where the job is not blocked (it is dropped here);
--          of "e<id>": how it ended, nothing where it has not, its jobtype, ids of children that were not told yet
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(limit · (members + children_max)), and the bytes of rows
--@include fail keys now counts order queues heads pages members holder move stands early life tries links
local now_ms = clock(ARGV[1])
local limit, children_max, rest_ms = number(ARGV[2], 'limit'), number(ARGV[3], 'children_max'), number(ARGV[4], 'rest_ms')

expect('links', 'linked', 'jobs', 'later', 'ended', 'dead', 'outcome', 'tries')
expect_held_keys()
local function is_blocked(id)
  return tonumber(redis.call('ZSCORE', K.later, id) or '0') >= blocked.MS
end

local function drop(entry)
  redis.call('ZREM', K.links, entry)
  return false
end

local function waiting(entry, id)
  local row = redis.call('HGET', K.jobs, id)
  return row and is_blocked(id) and {entry, row} or drop(entry)
end

local function ended(entry, id)
  local children = redis.call('ZRANGE', children_key(id), 0, 0, 'BYSCORE', 'LIMIT', 0, children_max)
  local row = redis.call('HGET', K.jobs, id)
  local has_ended = row and (redis.call('ZSCORE', K.dead, id) or redis.call('ZSCORE', K.ended, id))
  if not is_blocked(id) then
    redis.call('UNLINK', parents_key(id))
  end
  if #children == 0 or row and not has_ended then
    return drop(entry)
  end
  local jobtype, how = '', 'gone'
  if row then
    jobtype, how = how_stands(id)
  end
  return {entry, how, jobtype, unpack(children)}
end

local BYTES = 512000  -- of rows in one answer, but for the first: a job with 10,000 parents has a row of 300 kB
local found, bytes = {}, 0
local due = redis.call('ZRANGE', K.links, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)
for _, entry in ipairs(due) do
  expect_kind(children_key(entry:sub(2)), 'children')
  expect_kind(parents_key(entry:sub(2)), 'parents')
end
for _, entry in ipairs(due) do
  if bytes > BYTES then
    break
  end
  local id = entry:sub(2)
  redis.call('ZADD', K.links, now_ms + rest_ms, entry)
  local one = (entry:sub(1, 1) == 'w' and waiting or ended)(entry, id)
  if one then
    found[#found + 1] = one
    bytes = bytes + #one[2]
  end
end
local next_due = redis.call('ZRANGE', K.links, 0, 0, 'WITHSCORES')[2]
return {next_due and math.max(0, math.ceil(next_due - now_ms)) or '', redis.call('ZCARD', K.linked), now_ms + rest_ms, unpack(found)}
