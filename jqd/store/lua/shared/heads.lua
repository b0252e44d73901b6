-- Which job is next of each jobtype and priority, in one order over all of them.
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
-- Gives mend_head(jobtype, priority, known) → whether some wait under it: after jobs came or left that were not followed, `known` being what the row said;
-- add(queue, priority, leads, known, id): after that job came, which is the first of its priority or not; `known` was (Queues.may_lead).
-- refresh(queue) → whether it is parked: after its first job came or left; add_row(priority, id, queue): to be in the indexes; lead(jobtype, priority): its best row is;
-- best_keyed(jobtype, from, to: of all priorities if nil) → best row in `queues` and `loose`, priority; count_keyed(queue, number): so many more wait; note_paged(queue, number): of ids in its pages;
-- offer(queue, priority): a job of its jobtype may be offered. gather(its only jobtype, or nothing), write(): what is said in between of keyed queues is written at once,
-- for a call for each of hundreds of queues costs more than all else; call_with(words, command, key): with all these words.
-- In between: note_gone(priority, id, queue): of a job that waits no more, or not in the indexes; loosen(queue, priority, ids): these come loose, or to their queue if it is parked;
-- note_taken(priorities, rows), of the only jobtype: these are not loose any more, nor is any row of another priority than those, which are the keys of a table.
-- may_loosen(queue); is_loose(queue, id) → priority; drop_loose(queue, id) → whether it was.
starts.paged_numbers = empty  -- queue → number of ids in its pages, to be written

local function gathered_of(queue)
  if call.gathered_only then
    return call.gathered_only
  end
  local jobtype = Queues.type_of(queue)
  local its = call.gathered[jobtype]
  if not its then
    its = {gone = {}, rows = {}, queues = {}, priorities = {}, loose = {}, taken = {}, count = 0, best = math.huge}
    call.gathered[jobtype] = its
  end
  return its
end

function Heads.count_keyed(queue, number)
  if number == 0 or not Queues.is_keyed(queue) then
    return
  elseif call.gathered then
    local its = gathered_of(queue)
    its.count = its.count + number
    return
  end
  Queues.begin_keyed()
  local jobtype = Queues.type_of(queue)
  if redis.call('HINCRBY', K.keyed, jobtype, number) <= 0 then
    redis.call('HDEL', K.keyed, jobtype)
  end
end

function Heads.offer(queue, priority)
  local its = call.gathered and Queues.is_keyed(queue) and gathered_of(queue)
  if its then
    its.best = math.min(its.best, tonumber(priority))
  else
    redis.call('ZADD', K.types, 'LT', priority, Queues.type_of(queue))
  end
end

local function write_paged()
  local rows, gone = {}, {}
  for queue, number in pairs(call.paged_numbers) do
    if number > 0 then
      rows[#rows + 1], rows[#rows + 2] = queue, string.format('%.0f', number)
    else
      gone[#gone + 1] = queue
    end
  end
  call.paged_numbers = {}
  Heads.call_with(rows, 'HSET', K.paged)
  Heads.call_with(gone, 'HDEL', K.paged)
end

function Heads.note_paged(queue, number)
  call.paged_numbers[queue] = number
  if not call.gathered then
    write_paged()
  end
end

local function lead_of(jobtype, priority)
  local row = redis.call('ZRANGE', K.queues .. jobtype, priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  local loose = redis.call('ZRANGE', K.loose .. jobtype, priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  return loose and not (row and Order.before(row, loose)) and loose or row
end

function Heads.best_keyed(jobtype, from, to)
  local function first_of(index)
    return unpack(redis.call('ZRANGE', index, from or '-inf', to or '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  end
  local row, priority = first_of(K.queues .. jobtype)
  local loose, its = first_of(K.loose .. jobtype)
  if loose and not (row and Order.precedes(tonumber(priority), row, tonumber(its), loose)) then
    return loose, its
  end
  return row, priority
end

-- The best row of a jobtype's keyed queues under that priority is to be in the index of all.
function Heads.lead(jobtype, priority)
  local lead = lead_of(jobtype, priority)
  if lead then
    redis.call('ZADD', Queues.all_of(jobtype), priority, lead)
  end
end

function Heads.add_row(priority, id, queue)
  local row = Queues.head_row(id, queue)
  if not Queues.is_keyed(queue) then
    redis.call('ZADD', Queues.all_of(queue), priority, row)
  elseif call.gathered then
    local its = gathered_of(queue)
    local at = #its.queues + 1
    its.queues[at], its.rows[2 * at - 1], its.rows[2 * at] = queue, priority, row
    its.priorities[tonumber(priority)] = true
  else
    local jobtype = Queues.type_of(queue)
    local lead = lead_of(jobtype, priority)
    redis.call('ZADD', K.queues .. jobtype, priority, row)
    if not lead or Order.before(row, lead) then
      if lead then
        redis.call('ZREM', Queues.all_of(jobtype), lead)
      end
      redis.call('ZADD', Queues.all_of(jobtype), priority, row)
    end
  end
end

function Heads.is_loose(queue, id)
  return call.has_keyed and Queues.is_keyed(queue) and redis.call('ZSCORE', Queues.loose_key(queue), Queues.head_row(id, queue)) or nil
end

function Heads.drop_loose(queue, id)
  local priority = Heads.is_loose(queue, id)
  if not priority then
    return false
  end
  local row, all = Queues.head_row(id, queue), Queues.all_of(queue)
  redis.call('ZREM', Queues.loose_key(queue), row)
  Heads.count_keyed(queue, -1)
  if redis.call('ZSCORE', all, row) == priority then
    redis.call('ZREM', all, row)
  end
  Heads.lead(Queues.type_of(queue), priority)
  return true
end

-- Where jobs age each queue has its jobs together, for those that had dates go by what stands behind them (ageing.lua).
function starts.may_loosen() return not is_here('aged') end
function Heads.may_loosen(queue)
  return Queues.is_keyed(queue) and call.may_loosen
end

function Heads.loosen(queue, priority, ids)
  local its = gathered_of(queue)
  its.loose[#its.loose + 1] = {queue = queue, priority = priority, ids = ids}
  its.priorities[tonumber(priority)] = true
end

function Heads.note_taken(priorities, rows)
  local taken, its = call.gathered_only.taken, call.gathered_only.priorities
  local filled = #taken
  for at = 1, #rows do
    taken[filled + at] = rows[at]
  end
  for priority in pairs(priorities) do
    its[priority] = true
  end
end

function Heads.gather(jobtype)
  call.gathered = {}
  call.gathered_only = jobtype and gathered_of(jobtype)
end

function Heads.note_gone(priority, id, queue)
  local its = gathered_of(queue)
  its.gone[#its.gone + 1] = Queues.head_row(id, queue)
  its.priorities[tonumber(priority)] = true
end

function Heads.refresh(queue)
  local known, bucket = (redis.call('HGET', K.parked, queue) or ''):match('^(%S+) (.*)$')
  if not known then
    return false
  end
  local id, priority = Queues.first_between(queue, '-inf', '+inf')
  if id ~= known then
    redis.call('ZREM', K.aside .. bucket, Queues.head_row(known, queue))
  end
  if id then
    redis.call('ZADD', K.aside .. bucket, priority, Queues.head_row(id, queue))
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
      Heads.refresh(queues[at])
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
      words[#words + 1], words[#words + 2] = one.priority, is_parked and id or Queues.head_row(id, one.queue)
    end
    if is_parked then
      its.count = its.count + redis.call('ZADD', ready_key(one.queue), unpack(words))
      Heads.refresh(one.queue)
    end
  end
  its.count = its.count + Heads.call_with(rows, 'ZADD', K.loose .. jobtype)
end

-- As many calls as it takes: `unpack` ends a function at some 8,000 words, after what it had written. Returns the sum of the answers.
function Heads.call_with(words, command, key)
  local sum = 0
  for at = 1, #words, 1000 do
    sum = sum + redis.call(command, key, unpack(words, at, math.min(at + 999, #words)))
  end
  return sum
end

local function write_gathered(jobtype, its)
  local index, all, leads, old, new = K.queues .. jobtype, Queues.all_of(jobtype), {}, {}, {}
  for priority in pairs(its.priorities) do
    leads[priority] = lead_of(jobtype, priority) or ''
  end
  write_loose(jobtype, its)
  its.count = its.count - Heads.call_with(its.taken, 'ZREM', K.loose .. jobtype)
  Heads.call_with(its.gone, 'ZREM', index)
  Heads.call_with(without_parked(its), 'ZADD', index)
  for priority, before in pairs(leads) do
    local lead = lead_of(jobtype, priority)
    if before ~= '' and before ~= lead then
      old[#old + 1] = before
    end
    if lead then
      new[#new + 1], new[#new + 2] = priority, lead
    end
  end
  Heads.call_with(old, 'ZREM', all)
  Heads.call_with(new, 'ZADD', all)
end

function Heads.write()
  local all = call.gathered
  call.gathered, call.gathered_only = nil, nil
  write_paged()
  for jobtype, its in pairs(all) do
    write_gathered(jobtype, its)
    Heads.count_keyed(jobtype .. '\30', its.count)
    if its.best < math.huge then
      Heads.offer(jobtype, its.best)
    end
  end
end

-- Under its own priority only: the job may wait under another priority by now, and be the first there.
local function drop_head(queue, priority, id)
  local row = Queues.head_row(id, queue)
  local its = call.gathered and Queues.is_keyed(queue) and gathered_of(queue)
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
  drop(Queues.all_of(queue))
  if Queues.is_keyed(queue) then
    drop(K.queues .. Queues.type_of(queue))
  end
end

function Heads.add(queue, priority, leads, known, id)
  local is_keyed = Queues.is_keyed(queue)
  if leads and not (is_keyed and not call.gathered and Heads.refresh(queue)) then
    if known and known ~= id then
      drop_head(queue, priority, known)
    end
    Heads.add_row(priority, id, queue)
  end
  if leads or is_keyed then  -- else one that stands before it was offered
    Heads.offer(queue, priority)
  end
end

function Heads.mend_head(jobtype, priority, known)
  local is_keyed = Queues.is_keyed(jobtype)
  if is_keyed and Heads.refresh(jobtype) then
    return
  end
  local id, its = Queues.head_of(jobtype, priority), priority
  if known and known ~= id then
    drop_head(jobtype, priority, known)
  end
  if not id and is_keyed then  -- the next one may have no row: a queue is let go with those of its first priorities
    id, its = Queues.first_between(jobtype, '(' .. priority, '+inf')
  end
  if id then
    Heads.add_row(its, id, jobtype)
  end
  if is_keyed then
    Heads.lead(Queues.type_of(jobtype), priority)
  end
  return id ~= nil
end
