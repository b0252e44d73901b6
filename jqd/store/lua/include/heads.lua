-- Which job is next of each jobtype and priority, in one order over all of them. Needs keys, fail, order, queues.
--
--     heads            zset  "<id>:<queue>" → priority: one row for each priority that jobs of a queue wait under, of the first of them.
--                            Of a jobtype's keyed queues only the best of each priority has one, loose or not
--     queues:<tenant>\31 zset  the same of one tenant; in `heads` are those of the tenant ""
--     queues:<jobtype> zset  rows of all keyed queues of a jobtype
--     loose:<jobtype>  zset  the same rows, each of a job that waits here and nowhere else: few came at once for its queue, and those stay here until it must wait
--     parked           hash  queue → "<id> <bucket>": its first job, and what it waits for. It has no row in those above
--     aside:<bucket>   zset  "<id>:<queue>" → priority: of each queue that waits for it the first job
--
-- So the best jobs of any range of priorities are found, whatever waits outside it. pages.lua says where jobs wait.
-- Gives mend_head(jobtype, priority, known): after jobs came or left that were not followed, `known` being what the row said;
-- add_head(jobtype, priority, known, id): after that job came.
-- keyed.refresh(queue) → whether it is parked: after its first job came or left; keyed.row(priority, id, queue): to be in the indexes; keyed.lead(jobtype, priority): its best row is;
-- keyed.best(jobtype) → best row in `queues` and `loose`, priority; keyed.count(queue, number): so many more wait; keyed.paged(queue, number): of ids in its pages;
-- keyed.offers(queue, priority): a job of its jobtype may be offered. keyed.gather(its only jobtype, or nothing), keyed.write(): what is said in between of keyed queues is written at once,
-- for a call for each of hundreds of queues costs more than all else; keyed.call(words, command, key, how): with all these words; `how`, if it is said, stands before them.
-- In between: keyed.gone(priority, id, queue): of a job that waits no more, or not in the indexes; keyed.loosen(queue, priority, ids): these come loose, or to their queue if it is parked;
-- keyed.taken(priorities, rows), of the only jobtype: these are not loose any more, nor is any row of another priority than those, which are the keys of a table.
-- keyed.may_loosen(queue); keyed.is_loose(queue, id) → priority; keyed.drop_loose(queue, id) → whether it was.
local drop_head, add_head, mend_head
do
  local gathered  -- jobtype → what is to be written of it
  local paged = {}  -- queue → number of ids in its pages, to be written
  local only  -- the same of the only jobtype, where there is but one

  local function gathered_of(queue)
    if only then
      return only
    end
    local jobtype = keyed.type_of(queue)
    local its = gathered[jobtype]
    if not its then
      its = {gone = {}, rows = {}, queues = {}, priorities = {}, loose = {}, taken = {}, count = 0, best = math.huge}
      gathered[jobtype] = its
    end
    return its
  end

  function keyed.count(queue, number)
    if number == 0 or not keyed.is(queue) then
      return
    elseif gathered then
      local its = gathered_of(queue)
      its.count = its.count + number
      return
    end
    keyed.begin()
    local jobtype = keyed.type_of(queue)
    if redis.call('HINCRBY', K.keyed, jobtype, number) <= 0 then
      redis.call('HDEL', K.keyed, jobtype)
    end
  end

  function keyed.offers(queue, priority)
    local its = gathered and keyed.is(queue) and gathered_of(queue)
    if its then
      its.best = math.min(its.best, tonumber(priority))
    else
      redis.call('ZADD', K.types, 'LT', priority, keyed.type_of(queue))
    end
  end

  local function write_paged()
    local rows, gone = {}, {}
    for queue, number in pairs(paged) do
      if number > 0 then
        rows[#rows + 1], rows[#rows + 2] = queue, string.format('%.0f', number)
      else
        gone[#gone + 1] = queue
      end
    end
    paged = {}
    keyed.call(rows, 'HSET', K.paged)
    keyed.call(gone, 'HDEL', K.paged)
  end

  function keyed.paged(queue, number)
    paged[queue] = number
    if not gathered then
      write_paged()
    end
  end

  local function lead_of(jobtype, priority)
    local row = redis.call('ZRANGE', K.queues .. jobtype, priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
    local loose = redis.call('ZRANGE', K.loose .. jobtype, priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
    return loose and not (row and before(row, loose)) and loose or row
  end

  function keyed.best(jobtype)
    local row, priority = unpack(redis.call('ZRANGE', K.queues .. jobtype, 0, 0, 'WITHSCORES'))
    local loose, its = unpack(redis.call('ZRANGE', K.loose .. jobtype, 0, 0, 'WITHSCORES'))
    if loose and not (row and precedes(tonumber(priority), row, tonumber(its), loose)) then
      return loose, its
    end
    return row, priority
  end

  -- The best row of a jobtype's keyed queues under that priority is to be in the index of all.
  function keyed.lead(jobtype, priority)
    local lead = lead_of(jobtype, priority)
    if lead then
      redis.call('ZADD', keyed.all_of(jobtype), priority, lead)
    end
  end

  function keyed.row(priority, id, queue)
    local row = head_row(id, queue)
    if not keyed.is(queue) then
      redis.call('ZADD', keyed.all_of(queue), priority, row)
    elseif gathered then
      local its = gathered_of(queue)
      local at = #its.queues + 1
      its.queues[at], its.rows[2 * at - 1], its.rows[2 * at] = queue, priority, row
      its.priorities[tonumber(priority)] = true
    else
      local jobtype = keyed.type_of(queue)
      local lead = lead_of(jobtype, priority)
      redis.call('ZADD', K.queues .. jobtype, priority, row)
      if not lead or before(row, lead) then
        if lead then
          redis.call('ZREM', keyed.all_of(jobtype), lead)
        end
        redis.call('ZADD', keyed.all_of(jobtype), priority, row)
      end
    end
  end

  function keyed.is_loose(queue, id)
    return keyed.known and keyed.is(queue) and redis.call('ZSCORE', keyed.loose_key(queue), head_row(id, queue)) or nil
  end

  function keyed.drop_loose(queue, id)
    local priority = keyed.is_loose(queue, id)
    if not priority then
      return false
    end
    local row, all = head_row(id, queue), keyed.all_of(queue)
    redis.call('ZREM', keyed.loose_key(queue), row)
    keyed.count(queue, -1)
    if redis.call('ZSCORE', all, row) == priority then
      redis.call('ZREM', all, row)
    end
    keyed.lead(keyed.type_of(queue), priority)
    return true
  end

  -- Where jobs age each queue has its jobs together, for those that had dates go by what stands behind them (ageing.lua).
  local may_loosen
  function keyed.may_loosen(queue)
    if may_loosen == nil and keyed.is(queue) then
      may_loosen = redis.call('EXISTS', K.aged) == 0
    end
    return may_loosen and keyed.is(queue)
  end

  function keyed.loosen(queue, priority, ids)
    local its = gathered_of(queue)
    its.loose[#its.loose + 1] = {queue = queue, priority = priority, ids = ids}
    its.priorities[tonumber(priority)] = true
  end

  function keyed.taken(priorities, rows)
    local taken, its = only.taken, only.priorities
    local filled = #taken
    for at = 1, #rows do
      taken[filled + at] = rows[at]
    end
    for priority in pairs(priorities) do
      its[priority] = true
    end
  end

  function keyed.gather(jobtype)
    gathered = {}
    only = jobtype and gathered_of(jobtype)
  end

  function keyed.gone(priority, id, queue)
    local its = gathered_of(queue)
    its.gone[#its.gone + 1] = head_row(id, queue)
    its.priorities[tonumber(priority)] = true
  end

  function keyed.refresh(queue)
    local known, bucket = (redis.call('HGET', K.parked, queue) or ''):match('^(%S+) (.*)$')
    if not known then
      return false
    end
    local id, priority = first_between(queue, '-inf', '+inf')
    if id ~= known then
      redis.call('ZREM', keyed.aside_key(bucket), head_row(known, queue))
    end
    if id then
      redis.call('ZADD', keyed.aside_key(bucket), priority, head_row(id, queue))
      redis.call('HSET', K.parked, queue, id .. ' ' .. bucket)
    else
      redis.call('HDEL', K.parked, queue)
    end
    return true
  end

  -- Rows of parked queues come to no index.
  local function without_parked(its)
    local queues, rows = its.queues, its.rows
    if #queues == 0 or redis.call('EXISTS', K.parked) == 0 then
      return rows
    end
    local left = {}
    for at, parked in ipairs(redis.call('HMGET', K.parked, unpack(queues))) do
      if parked then
        keyed.refresh(queues[at])
      else
        left[#left + 1], left[#left + 2] = rows[2 * at - 1], rows[2 * at]
      end
    end
    return left
  end

  -- What comes loose; what is of a parked queue comes there.
  local function write_loose(jobtype, its)
    local rows, queues = {}, {}
    for at, one in ipairs(its.loose) do
      queues[at] = one.queue
    end
    local parked = #queues > 0 and redis.call('EXISTS', K.parked) == 1 and redis.call('HMGET', K.parked, unpack(queues))
    for at, one in ipairs(its.loose) do
      local is_parked, words = parked and parked[at], parked and parked[at] and {} or rows
      for _, id in ipairs(one.ids) do
        words[#words + 1], words[#words + 2] = one.priority, is_parked and id or head_row(id, one.queue)
      end
      if is_parked then
        its.count = its.count + redis.call('ZADD', ready_key(one.queue), unpack(words))
        keyed.refresh(one.queue)
      end
    end
    for at = 1, #rows, 1000 do
      its.count = its.count + redis.call('ZADD', K.loose .. jobtype, unpack(rows, at, math.min(at + 999, #rows)))
    end
  end

  -- As many calls as it takes: `unpack` ends a script at some 8,000 words, after what it had written.
  function keyed.call(words, command, key, how)
    for at = 1, #words, 1000 do
      local last = math.min(at + 999, #words)
      if how then
        redis.call(command, key, how, unpack(words, at, last))
      else
        redis.call(command, key, unpack(words, at, last))
      end
    end
  end

  local function write_gathered(jobtype, its)
    local index, all, leads, old, new = K.queues .. jobtype, keyed.all_of(jobtype), {}, {}, {}
    for priority in pairs(its.priorities) do
      leads[priority] = lead_of(jobtype, priority) or ''
    end
    write_loose(jobtype, its)
    for at = 1, #its.taken, 1000 do
      its.count = its.count - redis.call('ZREM', K.loose .. jobtype, unpack(its.taken, at, math.min(at + 999, #its.taken)))
    end
    keyed.call(its.gone, 'ZREM', index)
    keyed.call(without_parked(its), 'ZADD', index)
    for priority, before in pairs(leads) do
      local lead = lead_of(jobtype, priority)
      if before ~= '' and before ~= lead then
        old[#old + 1] = before
      end
      if lead then
        new[#new + 1], new[#new + 2] = priority, lead
      end
    end
    keyed.call(old, 'ZREM', all)
    keyed.call(new, 'ZADD', all)
  end

  function keyed.write()
    local all = gathered
    gathered, only = nil, nil
    write_paged()
    for jobtype, its in pairs(all) do
      write_gathered(jobtype, its)
      keyed.count(jobtype .. '\30', its.count)
      if its.best < math.huge then
        keyed.offers(jobtype, its.best)
      end
    end
  end

  -- Under its own priority only: the job may wait under another priority by now, and be the first there.
  function drop_head(queue, priority, id)
    local row = head_row(id, queue)
    local its = gathered and keyed.is(queue) and gathered_of(queue)
    for at = its and #its.queues or 0, 1, -1 do
      if its.rows[2 * at] == row then
        table.remove(its.queues, at)
        table.remove(its.rows, 2 * at)
        table.remove(its.rows, 2 * at - 1)
      end
    end
    local function drop(index)
      if tonumber(redis.call('ZSCORE', index, row) or nil) == tonumber(priority) then
        redis.call('ZREM', index, row)
      end
    end
    drop(keyed.all_of(queue))
    if keyed.is(queue) then
      drop(keyed.heads_key(queue))
    end
  end

  function add_head(jobtype, priority, known, id)
    if known and before(known, id) or keyed.is(jobtype) and not gathered and keyed.refresh(jobtype) then
      return
    elseif known and known ~= id then
      drop_head(jobtype, priority, known)
    end
    keyed.row(priority, id, jobtype)
  end

  function mend_head(jobtype, priority, known)
    local is_keyed = keyed.is(jobtype)
    if is_keyed and keyed.refresh(jobtype) then
      return
    end
    local id, its = head_of(jobtype, priority), priority
    if known and known ~= id then
      drop_head(jobtype, priority, known)
    end
    if not id and is_keyed then  -- the next one may have no row: a queue is let go with those of its first priorities
      id, its = first_between(jobtype, '(' .. priority, '+inf')
    end
    if id then
      keyed.row(its, id, jobtype)
    end
    if is_keyed then
      keyed.lead(keyed.type_of(jobtype), priority)
    end
  end
end
