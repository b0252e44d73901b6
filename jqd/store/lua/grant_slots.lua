#!lua flags=allow-oom
-- Grants a partition slots of concurrencies that are counted here (include/permits.lua), once all partitions have said what they have.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, number of the partition that wants some, then per bucket: bucket, how many, number of
--          reports that follow, of each: partition, era, granted, returned, made, as it said itself
-- Returns  per bucket: era; granted to that partition so far, -1 while others have to say what they have; to which row of it (`made`); the concurrency; how
--          many were granted now; then flat: partition, what it was granted, and to which row, of those that have to speak, or may have some to give back when these were too few
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(buckets · partitions)
--@include fail keys now life order queues heads members permits limits
local _, now_us = clock(ARGV[1])
local asker = number(ARGV[3], 'partition')
local FIRST, FIELDS, REPORT = 4, 3, 5

expect('life', 'limits', 'due', 'keyed', 'permits', 'fence')
expect_life(ARGV[2])
local wants, at = {}, FIRST
while at <= #ARGV do
  local want = {bucket = ARGV[at], count = number(ARGV[at + 1], 'slots'), reports = {}}
  local last = at + FIELDS + REPORT * number(ARGV[at + 2], 'reports') - 1
  for place = at + FIELDS, last, REPORT do
    want.reports[#want.reports + 1] = {
      partition = number(ARGV[place], 'partition'), era = number(ARGV[place + 1], 'era'),
      granted = number(ARGV[place + 2], 'granted'), returned = number(ARGV[place + 3], 'returned'),
      made = number(ARGV[place + 4], 'made'),
    }
  end
  wants[#wants + 1], at = want, last + 1
end

-- What was noted in an earlier life may lack what was granted since.
local function account(bucket)
  local era, rest = (redis.call('HGET', K.permits, 'h' .. bucket) or ''):match('^(%d+) %d+(.*)$')
  local has = {}
  if not era or tonumber(era) <= permits.high() then
    return nil, has
  end
  for partition, granted, returned, made in rest:gmatch(' (%d+):(%d+):(%d+):(%d+)') do
    has[tonumber(partition)] = {granted = tonumber(granted), returned = tonumber(returned), made = tonumber(made)}
  end
  return tonumber(era), has
end

local function write(bucket, era, has)
  local row = {digits(era), digits(now_us)}
  for partition = 0, permits.count - 1 do
    local its = has[partition]
    row[#row + 1] = its and string.format('%d:%.0f:%.0f:%.0f', partition, its.granted, its.returned, its.made)
  end
  redis.call('HSET', K.permits, 'h' .. bucket, table.concat(row, ' '))
  keyed.begin()  -- else nobody would look when it is not needed any more
  redis.call('ZADD', K.due, 'LT', math.floor(now_us / 1000) + permits.KEPT_MS, bucket)
end

-- What a partition said in this era. A later row of it knows of its hands alone: no grant to an earlier one is taken there any more.
local function merge(has, report)
  local its = has[report.partition]
  if not its or its.made < report.made then
    has[report.partition] = {granted = report.granted, returned = report.returned, made = report.made}
  elseif its.made == report.made then
    its.returned = math.max(its.returned, report.returned)
  end
  return has[report.partition].made == report.made
end

-- An era of which others know and this home does not was begun by a clock that was ahead.
local function begin_era(reports)
  local era = next_fence(now_us)
  for _, report in ipairs(reports) do
    era = math.max(era, report.era + 1)
  end
  return era
end

local function grant(want)
  local era, has = account(want.bucket)
  local rule = limits.rule(want.bucket:match('^[^\29]*'))
  local has_spoken, is_behind = false, false
  for _, report in ipairs(want.reports) do
    is_behind = is_behind or era ~= nil and report.era > era
  end
  if not era or is_behind then
    era, has = begin_era(want.reports), {}
  end
  for _, report in ipairs(want.reports) do
    if report.era == era then
      local is_latest = merge(has, report)
      has_spoken = has_spoken or is_latest and report.partition == asker
    end
  end
  local answer, used, missing = {}, 0, {}
  local function note(rows, partition, its)
    rows[#rows + 1], rows[#rows + 2], rows[#rows + 3] = partition, digits(its and its.granted or 0), digits(its and its.made or 0)
  end
  for partition = 0, permits.count - 1 do
    local its = has[partition]
    if not its or partition == asker and not has_spoken then
      note(missing, partition, its)
    end
    used = used + (its and its.granted - its.returned or 0)
  end
  if #missing > 0 then
    write(want.bucket, era, has)
    return {digits(era), -1, 0, 0, 0, unpack(missing)}
  end
  local given = math.max(0, math.min(want.count, (rule and rule.concurrency or 0) - used))
  has[asker].granted = has[asker].granted + given
  write(want.bucket, era, has)
  answer = {digits(era), digits(has[asker].granted), digits(has[asker].made), rule and rule.concurrency or 0, given}
  for partition = 0, given < want.count and permits.count - 1 or -1 do
    if has[partition].granted > has[partition].returned then
      note(answer, partition, has[partition])
    end
  end
  return answer
end

permits.many()
local answers = {}
for place, want in ipairs(wants) do
  answers[place] = grant(want)
end
return answers
