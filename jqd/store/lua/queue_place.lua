-- What waits before a job that is ready.
-- ARGV     now_ms, id, ids of its line that are looked at most, jobtypes that are named at most, the period (ms) where jobs age, else 0
-- Returns  nothing when it is not ready; else number of jobs of its queue before it; 1 when that is exact, else there may be more; deaths of daemons it
--          was in hand at; 1 when it may only run alone; number of other jobtypes whose best job is better, of ROWS; flat: some of those, number ready of each;
--          the bucket of a constraint that its line waits for or nothing, when (ms) that is looked at again or 0, some ids that it has in a hand
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(ids looked at + levels + jobtypes with better jobs)
register('queue_place', {'no-writes'}, function()
  local id, ids_max, types_max, period_ms = ARGV[2], number(ARGV[3], 'ids'), number(ARGV[4], 'types'), number(ARGV[5], 'period_ms')
  local ROWS, WORST, BEST = 1024, 2147483647, -2147483648  -- of an index, and of all priorities
  local HELD = 5  -- ids in a hand that are named

  expect('jobs', 'deaths', 'about', 'later', 'ended', 'dead', 'counts', 'life')
  local queue, priority = Move.header(redis.call('HGET', K.jobs, id) or '')
  if not queue or Move.has_ended(id) or redis.call('ZSCORE', K.later, id) or About.hold(id) then
    return {}
  end
  local jobtype = Lines.type_of(queue)
  Lines.expect_type(jobtype)

  local function size_of(level)
    expect_kind(K.line .. level .. ':' .. queue, 'line')
    return redis.call('LLEN', K.line .. level .. ':' .. queue)
  end

  -- The level where it waits, how many are before it there, and whether it was found.
  local function find()
    local levels = Lines.lines_of(queue, priority)
    for _, level in ipairs(levels) do
      local at = size_of(level) > 0 and redis.call('LPOS', K.line .. level .. ':' .. queue, id, 'MAXLEN', ids_max)
      if at then
        return level, at, true
      end
    end
    for _, level in ipairs(levels) do
      local size = size_of(level)
      if size > ids_max then
        return level, ids_max, false
      end
    end
    return levels[1], 0, false
  end

  local own, ahead, is_exact = find()
  local since = Lines.split(own)
  local rank = period_ms > 0 and Ages.rank(since, priority, period_ms, id) or priority
  local line, seen = own .. ':' .. queue, {[own] = true}
  local bucket = (call.has_limits and redis.call('HGET', K.parked, line) or ''):match('^%S+ (.*)$')
  is_exact = is_exact and not Lines.is_marked(priority, queue) and not (Lines.is_keyed(queue) and redis.call('EXISTS', K.parked) == 1)

  local following = Ages.walk(K.levels .. jobtype, BEST, WORST, period_ms, priority)
  for _ = 1, ROWS do
    local level, _, its_rank = following()
    if not level or level == own or its_rank > rank then
      break
    end
    seen[level], ahead = true, ahead + size_of(level)
  end
  local aside = bucket and redis.call('ZRANGE', K.aside .. bucket, '-inf', priority, 'BYSCORE', 'LIMIT', 0, ROWS) or {}
  for _, other in ipairs(aside) do  -- in the order of priorities alone
    local level, its = Lines.split_line(Parked.line_of(other))
    if its == queue and not seen[level] then
      ahead = ahead + size_of(level)
    end
  end

  local better, named, met = 0, {}, {[jobtype] = true}
  expect_kind(Lines.heads_key(jobtype), 'heads')
  following = Ages.walk(Lines.heads_key(jobtype), BEST, WORST, period_ms, priority)
  for _ = 1, ROWS do
    local row, _, its_rank = following()
    if not row or its_rank >= rank then
      break
    end
    local other = row:match('^[^:!]+[:!][^:]+:[^:]*:(.*)$')
    if other and not met[other] then
      met[other], better = true, better + 1
      if #named < 2 * types_max then
        named[#named + 1], named[#named + 2] = other, Counts.may_wait({other})[1]
      end
    end
  end

  local looked_at, holds = '0', {}
  if bucket then
    expect_kind(K.busy .. bucket, 'busy')
    holds = redis.call('ZRANGE', K.busy .. bucket, 0, HELD - 1)
    looked_at = #holds == 0 and redis.call('ZSCORE', K.due, bucket) or '0'  -- else when one of these leaves
  end
  return {ahead, is_exact and 1 or 0, (Deaths.deaths_of(id)), Deaths.is_suspect(id) and 1 or 0, better, named, bucket or '', looked_at, holds}
end)
