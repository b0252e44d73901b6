-- Returns what runs before a ready job.
-- ARGV     1    now_ms
--          2    id
--          3    limit of pages that are counted
--          4    limit of jobtypes that are named
--          5    1 if jobs age
-- Returns  nothing if it is not ready; else number of jobs of its queue before it; 1 if that is exact, else it is the
--          most; deaths of daemons that held it; 1 if it runs alone; number of jobtypes with a better best job; flat:
--          some of these, number ready of each; the bucket that its queue waits for or nothing, when (ms) that is
--          looked at or 0, some held ids that it counts
-- Errors   JQD_ARGUMENT
-- Cost     O(pages + jobtypes + (log waiting)²); where jobs age the last for each priority in use
register('queue_place', {'no-writes'}, function()
  local now_ms, id, pages_max, types_max, ages = clock(ARGV[1]), ARGV[2], number(ARGV[3], 'pages'),
    number(ARGV[4], 'types'), ARGV[5] == '1'
  local PAGE = 100  -- ids of a page at most

  local row = redis.call('HGET', K.jobs, id)
  local jobtype, priority = Move.header(row or '')
  if not jobtype then
    return {}
  end
  local score = Pages.place_of(jobtype, priority, id)
  if not score then
    return {}
  end

  -- Counts the ids in pages of `rank` members of the backlog, from the first on; of each page but the last all are
  -- before the job. Up to `pages_max` are counted, in all; others are taken for full.
  local ahead, exact = 0, 1
  local function count_pages(backlog, first, rank, before_id)
    local counted = math.max(0, math.min(rank - first, pages_max))
    pages_max = pages_max - counted
    local pages = counted > 0 and redis.call('ZRANGE', backlog, rank - counted, rank - 1) or {}
    for at, page_id in ipairs(pages) do
      local page = Queues.page_key(page_id, jobtype)
      if at < counted then
        ahead = ahead + redis.call('LLEN', page)
      else
        for _, page_id in ipairs(redis.call('LRANGE', page, 0, -1)) do
          ahead = ahead + (Order.before(page_id, before_id) and 1 or 0)
        end
      end
    end
    if rank - first > counted then
      ahead, exact = ahead + (rank - first - counted) * PAGE, 0
    end
  end

  -- Loose jobs may be of other queues.
  local function count_loose(number)
    if Queues.is_keyed(jobtype) and number > 0 then
      ahead, exact = ahead + number, 0
    end
  end

  local better, named, own_type = 0, {}, Queues.type_of(jobtype)
  local function name_type(other)
    if #named < 2 * types_max then
      named[#named + 1], named[#named + 2] = other, Pages.waiting_of(other)
    end
  end

  local function look_by_priority()
    ahead = Order.rank_of(ready_key(jobtype), priority, id)
    count_loose(Order.rank_of(Queues.loose_key(jobtype), priority, Queues.head_row(id, jobtype)))
    if Queues.paged_of(jobtype) > 0 then
      count_pages(Queues.backlog_key(jobtype), 0, Order.rank_of(Queues.backlog_key(jobtype), priority, id, true), id)
    end
    better = redis.call('ZCOUNT', K.types, '-inf', '(' .. priority)
    local own = tonumber(redis.call('ZSCORE', K.types, own_type) or nil)
    if own and own < priority then
      better = better - 1
    end
    for _, other in ipairs(redis.call('ZRANGE', K.types, '-inf', '(' .. priority, 'BYSCORE', 'LIMIT', 0,
        types_max + 1)) do
      if other ~= own_type then
        name_type(other)
      end
    end
  end

  -- Counts, for each level, the jobs before the id that a job of its priority and our rank would have, for those that
  -- had dates all; and the other jobtypes of the tenant that have a better job in their first rows.
  local function look_by_age()
    local ROWS, ready, backlog = 1024, ready_key(jobtype), Queues.backlog_key(jobtype)
    local function first(from, to) return Queues.first_between(jobtype, from, to) end
    count_loose(redis.call('ZCARD', Queues.loose_key(jobtype)) - (Index.is_loose(jobtype, id) and 1 or 0))
    Ageing.begin(now_ms)
    local rank = Ageing.rank(tonumber(score), id)
    for _, level in ipairs(Ageing.levels(Queues.BEST, Queues.WORST, priority, {}, first)) do
      local level_score = level.score
      if level_score ~= Ageing.priority_of(level_score) and level.rank < rank then
        level_score, exact = Ageing.priority_of(level_score), 0
        ahead = ahead + redis.call('ZCOUNT', ready, '(' .. level_score, level_score + Ageing.LAST)
      elseif level.rank < rank or level.rank == rank and level_score == Ageing.priority_of(level_score) then
        local until_id = Ageing.until_id(level, rank, id)
        local before = redis.call('ZCOUNT', ready, '-inf', '(' .. level_score)
        ahead = ahead + math.max(0, Order.rank_of(ready, level_score, until_id) - before)
        if Queues.paged_of(jobtype) > 0 then
          count_pages(backlog, redis.call('ZCOUNT', backlog, '-inf', '(' .. level_score),
            Order.rank_of(backlog, level_score, until_id, true), until_id)
        end
      end
    end
    local next_row, seen = Ageing.walk(Queues.all_of(jobtype), Queues.BEST, Queues.WORST, priority), {[own_type] = true}
    for _ = 1, ROWS do
      local row, _, row_rank = next_row()
      if not row or row_rank >= rank then
        break
      end
      local other = Queues.type_of(row:match('^[^:]*:(.*)$') or '')
      if not seen[other] then
        seen[other], better = true, better + 1
        name_type(other)
      end
    end
  end

  if ages then
    look_by_age()
  else
    look_by_priority()
  end
  local HELD = 5  -- held ids that are named
  local place = Queues.is_keyed(jobtype) and select(2, Queues.parked_at(jobtype))
  local bucket = place and place:match('\30(.*)$')
  local looked_at, holds = '0', {}
  if bucket then
    holds = redis.call('ZRANGE', K.busy .. bucket, 0, HELD - 1)
    looked_at = #holds == 0 and redis.call('ZSCORE', K.due, place) or '0'  -- else when one of these jobs ends
  end
  return {ahead, exact, (Deaths.deaths_of(id)), Deaths.is_suspect(id) and 1 or 0, better, named, bucket or '',
    looked_at, holds}
end)
