-- Where ready jobs wait: each in exactly one of `ready`, one page, or `loose` (index.lua); its row says under which
-- priority. A few jobs of a type and priority are in `ready`. Those pushed behind them are in pages, lists of few ids
-- each that the server keeps packed, in a third of the memory. `ready` may have any job: one that comes back, or finds
-- no good page, goes there.
--
--     ready:<jobtype>       zset  id → priority
--     backlog:<jobtype>     zset  first id of a page → priority of all ids in it. The page has no id before that one,
--                                 and none from the first id of the next page of its priority on
--     page:<id>:<jobtype>   list  ids, ascending
--     paged                 hash  jobtype → number of its ids in pages; no row for 0
--

-- Counts so many more ids in pages. `has_some`: the queue surely has pages left.
local function add_paged(jobtype, number, has_some)
  local sum = 0
  if has_some or redis.call('EXISTS', Queues.backlog_key(jobtype)) == 1 then
    sum = math.max(1, Queues.paged_of(jobtype) + number)
    call.has_pages = true
  end
  if call.has_pages then
    Index.note_paged(jobtype, sum)
  end
  call.in_pages[jobtype] = sum
  Index.count_keyed(jobtype, number)
end

-- Returns the page in which a job belongs, and the next page of its priority: their first ids, or nil.
local function find_page(jobtype, priority, id)
  local backlog = Queues.backlog_key(jobtype)
  local last = redis.call('ZRANGE', backlog, priority, priority, 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
  if not last or not Order.before(id, last) then
    return last  -- the usual case: what is pushed is the newest
  end
  local rank = Order.rank_of(backlog, priority, id, true)
  local rows = redis.call('ZRANGE', backlog, math.max(0, rank - 1), rank, 'WITHSCORES')
  if rank == 0 or tonumber(rows[2]) ~= priority then
    return nil, rank == 0 and rows[1] or rows[3]
  end
  return rows[1], rows[3]
end

-- In a block of its own: a function may have 200 local names.
do
  -- ids of one priority in `ready`, above which pages are used: the server packs up to 128 itself
  local READY_MAX = 100
  local LOOSE_MAX = 50  -- of one queue that come at once; more go into pages, where a claim costs less
  local PAGE_MAX = 100  -- ids, less than 4 KiB: every server packs these, and to rewrite them is cheap
  local function add_here(jobtype, priority, ids, first, last)
    local rows = {}
    for at = first, last do
      rows[#rows + 1], rows[#rows + 2] = priority, ids[at]
    end
    Index.count_keyed(jobtype, redis.call('ZADD', ready_key(jobtype), unpack(rows)))
  end

  -- Returns whether no page begins with that id. One may: of another priority, under which the job waited once.
  local function may_begin(jobtype, id)
    return redis.call('EXISTS', Queues.page_key(id, jobtype)) == 0
  end

  local function begin_page(jobtype, priority, ids, first, last)
    redis.call('ZADD', Queues.backlog_key(jobtype), priority, ids[first])
    redis.call('RPUSH', Queues.page_key(ids[first], jobtype), unpack(ids, first, last))
  end

  -- Merges ids[first .. last] into a page; one that becomes too long is split. Returns how many came.
  local function rewrite_page(jobtype, priority, page, ids, first, last)
    local known, all, at = redis.call('LRANGE', page, 0, -1), {}, first
    for _, id in ipairs(known) do
      while at <= last and Order.before(ids[at], id) do
        all[#all + 1], at = ids[at], at + 1
      end
      all[#all + 1] = id
      at = ids[at] == id and at + 1 or at
    end
    for rest = at, last do
      all[#all + 1] = ids[rest]
    end
    local middle = math.floor(#all / 2) + 1
    local halves = #all > PAGE_MAX and may_begin(jobtype, all[middle])
    redis.call('LTRIM', page, 1, 0)
    redis.call('RPUSH', page, unpack(all, 1, halves and middle - 1 or #all))
    if halves then
      begin_page(jobtype, priority, all, middle, #all)
    end
    return #all - #known
  end

  -- Adds ids[at] and those behind it that belong into the same page. Returns the place of the last one, and how many
  -- ids more are in pages.
  local function add_some(jobtype, priority, ids, at)
    local first, next_first = find_page(jobtype, priority, ids[at])
    local last = math.min(#ids, at + PAGE_MAX - 1)
    while next_first and last > at and not Order.before(ids[last], next_first) do
      last = last - 1
    end
    if first then
      local page = Queues.page_key(first, jobtype)
      if not Order.before(redis.call('LINDEX', page, -1), ids[at]) then
        return last, rewrite_page(jobtype, priority, page, ids, at, last)
      end
      local room = PAGE_MAX - redis.call('LLEN', page)
      if room > 0 then
        last = math.min(last, at + room - 1)
        redis.call('RPUSH', page, unpack(ids, at, last))
        return last, last - at + 1
      end
    end
    -- A few late jobs do not get a page of their own.
    if not may_begin(jobtype, ids[at]) or next_first and not first and last - at < PAGE_MAX / 4 then
      add_here(jobtype, priority, ids, at, last)
      return last, 0
    end
    begin_page(jobtype, priority, ids, at, last)
    return last, last - at + 1
  end

  -- Adds jobs that wait nowhere yet; ids ascend.
  function Pages.add_waiting(jobtype, priority, ids)
    if #ids <= LOOSE_MAX and Index.may_loosen(jobtype) then
      Index.loosen(jobtype, priority, ids)
      return
    end
    local number = tonumber(priority)
    local leads, known, here = Queues.may_lead(jobtype, priority, ids[1])
    local is_paged = known ~= here or here and Queues.paged_of(jobtype) > 0
      and redis.call('ZCOUNT', Queues.backlog_key(jobtype), priority, priority) > 0
    local few = not is_paged and #ids <= READY_MAX
    if few and (not here or #ids + redis.call('ZCOUNT', ready_key(jobtype), priority, priority) <= READY_MAX) then
      add_here(jobtype, priority, ids, 1, #ids)
    else
      local at, paged = 1, 0
      while at <= #ids do
        local last, added = add_some(jobtype, number, ids, at)
        at, paged = last + 1, paged + added
      end
      if paged > 0 then
        add_paged(jobtype, paged, true)
      end
    end
    Index.came(jobtype, priority, leads, known, ids[1])
  end
end

-- Returns the first `limit` jobs between two priorities, of `ready` and the pages together: ids; id → its page (`all`:
-- the page of all ids; none: the job is in `ready`); priority, first id of it, flat, for each priority that was met.
function Pages.first_of(jobtype, limit, priority_min, priority_max)
  local here = Queues.read_between(ready_key(jobtype), priority_min, priority_max, 0, limit)
  local ids, filled, where, heads, at, offset, last = {}, 0, {}, {}, 1, 0, nil
  -- Takes the jobs in `ready` that are before a given one, or all; a loop, for a call for each would cost too much.
  local function put_here(priority, id)
    local all = not id or #here > 0 and Order.precedes(tonumber(here[#here]), here[#here - 1], priority, id)
    while filled < limit and here[at] and (all or Order.precedes(tonumber(here[at + 1]), here[at], priority, id)) do
      filled = filled + 1
      ids[filled] = here[at]
      if here[at + 1] ~= last then
        last = here[at + 1]
        heads[#heads + 1], heads[#heads + 2] = last, here[at]
      end
      at = at + 2
    end
  end
  local has_backlog = Queues.paged_of(jobtype) > 0
  while filled < limit do
    local row = has_backlog and Queues.read_between(Queues.backlog_key(jobtype), priority_min, priority_max,
      offset, 1) or {}
    local first, priority = row[1], tonumber(row[2])
    put_here(priority, first)
    if not first or filled == limit then
      break
    end
    local page = {first = first, ids = redis.call('LRANGE', Queues.page_key(first, jobtype), 0, limit - filled - 1)}
    if #here == 0 and #page.ids == limit then
      return page.ids, {all = page}, {row[2], page.ids[1]}
    end
    for _, id in ipairs(page.ids) do
      if here[at] then
        put_here(priority, id)
      end
      if filled == limit then
        break
      end
      filled = filled + 1
      ids[filled], where[id] = id, page
      if row[2] ~= last then
        last = row[2]
        heads[#heads + 1], heads[#heads + 2] = last, id
      end
    end
    offset = offset + 1
  end
  return ids, where, heads
end

-- Removes some of the ids that `first_of` returned, in that order.
function Pages.remove(jobtype, ids, where)
  local in_ready, pages, taken, has_some = {}, {}, 0, false
  if where.all then
    pages[where.all.first], taken = ids, #ids
  end
  for _, id in ipairs(where.all and {} or ids) do
    local page = where[id]
    local list = in_ready
    if page then
      pages[page.first] = pages[page.first] or {}
      list, taken = pages[page.first], taken + 1
    end
    list[#list + 1] = id
  end
  if #in_ready > 0 then
    Index.count_keyed(jobtype, -redis.call('ZREM', ready_key(jobtype), unpack(in_ready)))
  end
  for first, gone in pairs(pages) do
    local page, last = Queues.page_key(first, jobtype), gone[#gone]
    local read_ids = (where[last] or where.all).ids
    if read_ids[#gone] == last then
      redis.call('LTRIM', page, #gone, -1)
    else  -- some between them stay
      for _, id in ipairs(gone) do
        redis.call('LREM', page, 1, id)
      end
    end
    if #read_ids > #gone then
      has_some = true
    elseif redis.call('EXISTS', page) == 0 then
      redis.call('ZREM', Queues.backlog_key(jobtype), first)
    end
  end
  if taken > 0 then
    add_paged(jobtype, -taken, has_some)
  end
end

-- Removes ids as `remove` does, and notes that the first ones of their lines changed.
function Pages.take(jobtype, ids, where, heads)
  Pages.remove(jobtype, ids, where)
  local gone = {}
  for _, id in ipairs(ids) do
    gone[id] = true
  end
  for first = 1, #heads, 2 do
    if gone[heads[first + 1]] then
      Index.touch(jobtype, heads[first], heads[first + 1])
    end
  end
end

-- Removes a job from its page or from `loose`, unless it is in `ready`.
function Pages.drop_paged(jobtype, priority, id)
  if Index.drop_loose(jobtype, id) or Queues.paged_of(jobtype) == 0 then
    return
  end
  local first = find_page(jobtype, priority, id)
  local page = first and Queues.page_key(first, jobtype)
  if page and redis.call('LREM', page, 1, id) == 1 then
    if redis.call('EXISTS', page) == 0 then
      redis.call('ZREM', Queues.backlog_key(jobtype), first)
    end
    add_paged(jobtype, -1)
  end
end

-- Returns how many jobs of a queue wait and are not loose.
function Pages.waiting_of(jobtype)
  return redis.call('ZCARD', ready_key(jobtype)) + Queues.paged_of(jobtype)
end

-- Returns how many jobs of a jobtype wait, in all its queues.
function Pages.all_waiting_of(jobtype)
  local more = call.has_keyed and redis.call('HGET', K.keyed, jobtype) or 0
  return Pages.waiting_of(jobtype) + (tonumber(more) or 0)
end

-- Returns the priority under which a job waits, or nil.
function Pages.place_of(jobtype, priority, id)
  local score = redis.call('ZSCORE', ready_key(jobtype), id)
  local first = not score and Queues.paged_of(jobtype) > 0 and find_page(jobtype, priority, id)
  if first and redis.call('LPOS', Queues.page_key(first, jobtype), id) then
    return tostring(priority)
  end
  return score or Index.is_loose(jobtype, id)
end

-- Sets the best priority that still waits in `types`, or drops the row; to be called after jobs left.
function Pages.mend_type(queue)
  local jobtype = Queues.type_of(queue)
  local _, priority = Queues.first_between(jobtype, '-inf', '+inf')
  local has_keyed = call.has_keyed and redis.call('HEXISTS', K.keyed, jobtype) == 1
  if has_keyed then  -- parked jobs are not offered, so their priority does not count if others wait
    local _, best = Index.best_keyed(jobtype)
    best = tonumber(best)
    priority = math.min(tonumber(priority) or best or tonumber(redis.call('ZSCORE', K.types, jobtype) or nil) or 0,
      best or math.huge)
  end
  if priority then
    redis.call('ZADD', K.types, priority, jobtype)
  else
    redis.call('ZREM', K.types, jobtype)
  end
end

-- Removes a job from wherever it waits.
function Pages.drop_waiting(jobtype, priority, id)
  local score = redis.call('ZSCORE', ready_key(jobtype), id) or priority  -- where jobs age these differ
  local known = Queues.head_of(jobtype, score)
  if redis.call('ZREM', ready_key(jobtype), id) == 0 then
    Pages.drop_paged(jobtype, priority, id)
  else
    Index.count_keyed(jobtype, -1)
  end
  if known == id then
    Index.touch(jobtype, score, known)
  end
end
