-- Returns what runs before a ready job.
-- ARGV     1    now_ms
--          2    id
--          3    limit of pages that are counted
--          4    limit of jobtypes that are named
--          5    1 if jobs age: then the order is not looked up, and all jobs of its queue may be before it
-- Returns  nothing if it is not ready; else number of jobs of its queue before it; 1 if that is exact, else it is the
--          most; deaths of daemons that held it; 1 if it runs alone; number of jobtypes with a better best job; flat:
--          some of these, number ready of each; the bucket that its queue waits for or nothing, when (ms) that is
--          looked at or 0, some held ids that it counts
-- Errors   none
-- Cost     O(pages + jobtypes + (log waiting)²)
register('queue_place', {'no-writes'}, function()
  local id, pages_max, types_max, ages = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
  local PAGE = 100  -- ids of a page at most

  local row = redis.call('HGET', K.jobs, id)
  local jobtype, priority = Move.header(row or '')
  if not jobtype or not Pages.place_of(jobtype, priority, id) then
    return {}
  end

  local ahead, exact = 0, 1

  -- Counts the ids in pages that begin before the job; of all but the last page all are before it. Up to `pages_max`
  -- pages are counted, others are taken for full.
  local function count_pages()
    local backlog = Queues.backlog_key(jobtype)
    local rank = Order.rank_of(backlog, priority, id, true)
    local counted = math.min(rank, pages_max)
    local pages = counted > 0 and redis.call('ZRANGE', backlog, rank - counted, rank - 1, 'WITHSCORES') or {}
    for at = 1, #pages, 2 do
      local page, is_last = Queues.page_key(pages[at], jobtype), at + 1 == #pages
      if not is_last or tonumber(pages[at + 1]) < priority then
        ahead = ahead + redis.call('LLEN', page)
      else
        for _, page_id in ipairs(redis.call('LRANGE', page, 0, -1)) do
          ahead = ahead + (Order.before(page_id, id) and 1 or 0)
        end
      end
    end
    if rank > counted then
      ahead, exact = ahead + (rank - counted) * PAGE, 0
    end
  end

  local better, named, own_type = 0, {}, Queues.type_of(jobtype)
  if ages then
    local loose = Queues.is_keyed(jobtype) and redis.call('ZCARD', Queues.loose_key(jobtype)) or 0
    ahead = Pages.waiting_of(jobtype) + loose - 1
    exact = ahead == 0 and 1 or 0
  else
    ahead = Order.rank_of(ready_key(jobtype), priority, id)
    local loose = Order.rank_of(Queues.loose_key(jobtype), priority, Queues.head_row(id, jobtype))
    if Queues.is_keyed(jobtype) and loose > 0 then  -- they may be of other queues
      ahead, exact = ahead + loose, 0
    end
    if Queues.paged_of(jobtype) > 0 then
      count_pages()
    end
    better = redis.call('ZCOUNT', K.types, '-inf', '(' .. priority)
    local own = tonumber(redis.call('ZSCORE', K.types, own_type) or nil)
    if own and own < priority then
      better = better - 1
    end
    for _, other in ipairs(redis.call('ZRANGE', K.types, '-inf', '(' .. priority, 'BYSCORE', 'LIMIT', 0,
        types_max + 1)) do
      if other ~= own_type and #named < 2 * types_max then
        named[#named + 1], named[#named + 2] = other, Pages.waiting_of(other)
      end
    end
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
