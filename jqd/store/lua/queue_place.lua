-- What waits before a job that is ready.
-- ARGV     1    now_ms
--          2    id
--          3    pages that are counted at most
--          4    jobtypes that are named at most
--          5    1 where jobs age
-- Returns  nothing when it is not ready; else number of jobs of its queue before it; 1 when that is exact, else there
--          may be fewer; deaths of daemons it was in hand at; 1 when it may only run alone; number of other jobtypes
--          whose best job is better; flat: some of those, number ready of each; the bucket of a constraint that its
--          queue waits for or nothing, when (ms) that is looked at again or 0, some ids that it has in a hand
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

  -- Of those up to which `rank` members of the backlog begin, counted from the first on; how many of its ids are before
  -- that one, which only those of the last of them may be behind: `pages_max` of all that are asked for are counted,
  -- the others taken for full.
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
        for _, one in ipairs(redis.call('LRANGE', page, 0, -1)) do
          ahead = ahead + (Order.before(one, before_id) and 1 or 0)
        end
      end
    end
    if rank - first > counted then
      ahead, exact = ahead + (rank - first - counted) * PAGE, 0
    end
  end

  -- Those that are loose may be of other queues.
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

  -- Of each level those before the id that a job of its priority and our rank would have, of those that had dates all;
  -- of other jobtypes of the tenant those in whose first rows one is better.
  local function look_by_age()
    local ROWS, ready, backlog = 1024, ready_key(jobtype), Queues.backlog_key(jobtype)
    local function first(from, to) return Queues.first_between(jobtype, from, to) end
    count_loose(redis.call('ZCARD', Queues.loose_key(jobtype)) - (Heads.is_loose(jobtype, id) and 1 or 0))
    Ageing.begin(now_ms)
    local rank = Ageing.rank(tonumber(score), id)
    for _, level in ipairs(Ageing.levels(Queues.BEST, Queues.WORST, priority, {}, first)) do
      local its = level.score
      if its ~= Ageing.priority_of(its) and level.rank < rank then
        its, exact = Ageing.priority_of(its), 0
        ahead = ahead + redis.call('ZCOUNT', ready, '(' .. its, its + Ageing.LAST)
      elseif level.rank < rank or level.rank == rank and its == Ageing.priority_of(its) then
        local until_id = Ageing.until_id(level, rank, id)
        local before = redis.call('ZCOUNT', ready, '-inf', '(' .. its)
        ahead = ahead + math.max(0, Order.rank_of(ready, its, until_id) - before)
        if Queues.paged_of(jobtype) > 0 then
          count_pages(backlog, redis.call('ZCOUNT', backlog, '-inf', '(' .. its),
            Order.rank_of(backlog, its, until_id, true), until_id)
        end
      end
    end
    local next_row, seen = Ageing.walk(Queues.all_of(jobtype), Queues.BEST, Queues.WORST, priority), {[own_type] = true}
    for _ = 1, ROWS do
      local row, _, its = next_row()
      if not row or its >= rank then
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
  local HELD = 5  -- ids in a hand that are named
  local place = Queues.is_keyed(jobtype) and select(2, Queues.parked_at(jobtype))
  local bucket = place and place:match('\30(.*)$')
  local looked_at, holds = '0', {}
  if bucket then
    holds = redis.call('ZRANGE', K.busy .. bucket, 0, HELD - 1)
    looked_at = #holds == 0 and redis.call('ZSCORE', K.due, place) or '0'  -- else when one of these leaves
  end
  return {ahead, exact, (Deaths.deaths_of(id)), Deaths.is_suspect(id) and 1 or 0, better, named, bucket or '',
    looked_at, holds}
end)
