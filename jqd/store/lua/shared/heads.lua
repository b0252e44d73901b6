-- Which job is next of each jobtype and priority, in one order over all of them.
--
--     heads            zset  "<id>:<queue>" → priority: one row for each priority that jobs of a queue wait under, of
--                            the first of them. Of a jobtype's keyed queues only the best of each priority has one,
--                            loose or not
--     queues:<tenant>\31 zset  the same of one tenant; in `heads` are those of the tenant ""
--     queues:<jobtype> zset  rows of all keyed queues of a jobtype
--     loose:<jobtype>  zset  the same rows, each of a job that waits here and nowhere else: few came at once for its
--                            queue, and those stay here until it must wait
--     tied             hash  keyed queue whose jobs are not all loose → "", or "<id> <place>": its first job, and where
--                            it waits (parked.lua). Then it has no row in those above
--     aside:<place>    zset  "<id>:<queue>" → priority: of each queue that waits there the first job
--
-- So the best jobs of any range of priorities are found, whatever waits outside it. pages.lua says where jobs wait. A
-- *line* is what waits of a queue under one priority. While a call runs its lines change; what the indexes say of them,
-- and of what is loose, is written by `write`, once: for a call for each of hundreds of queues costs more than all
-- else. That is before jobs leave where they were (about.lua) and before their rows are written.
starts.lines, starts.lines_of, starts.gathered, starts.gathered_types = empty, empty, empty, empty
local function none() return false end
starts.mends, starts.paged_numbers = none, none  -- jobtype → true; queue → number of ids in its pages, to be written

-- What is to be written of the keyed queues of a jobtype.
local function gathered_of(queue)
  local its = call.gathered[queue]
  if not its then
    local jobtype = Queues.type_of(queue)
    its = call.gathered[jobtype]
    if not its then
      its = {jobtype = jobtype, gone = {}, lines = {}, priorities = {}, loose = {}, taken = {}, count = 0,
        best = math.huge}
      call.gathered_types[#call.gathered_types + 1], call.gathered[jobtype], call.is_moved = its, its, true
    end
    call.gathered[queue] = its
  end
  return its
end

-- A line changed. `known`: its job that had a row; `head`: which is first now; nil: that is looked up; false: the line
-- is empty.
function Heads.touch(queue, priority, known, head)
  local lines, number = call.lines_of[queue], tonumber(priority)
  if not lines then
    lines = {}
    call.lines_of[queue] = lines
  end
  local line = lines[number]
  if not line then
    line = {queue = queue, priority = priority, known = known or false}
    lines[number], call.lines[#call.lines + 1], call.is_moved = line, line, true
  elseif known and known ~= line.known then
    line.others = line.others or {}
    line.others[#line.others + 1] = known
  end
  line.head = head
end

-- Looks up which job is first. Returns the rows that the line may have had of others.
local function find_head(line)
  if line.head == nil then
    line.head = Queues.head_of(line.queue, line.priority)
  end
  local gone = line.known and line.known ~= line.head and {Queues.head_row(line.known, line.queue)} or Choose.NOWHERE
  for _, id in ipairs(line.others or Choose.NOWHERE) do
    gone = gone == Choose.NOWHERE and {} or gone
    gone[#gone + 1] = id ~= line.head and Queues.head_row(id, line.queue) or nil
  end
  return gone
end

-- A job came, which is the first of its line or not; `known` was (Queues.may_lead). If it is not, one that stands
-- before it was offered.
function Heads.came(queue, priority, leads, known, id)
  if leads then
    Heads.touch(queue, priority, known, id)
  end
  if Queues.is_keyed(queue) then
    local its = gathered_of(queue)
    its.best = math.min(its.best, tonumber(priority))
  elseif leads then
    redis.call('ZADD', K.types, 'LT', priority, queue)
  end
end

-- Jobs of that jobtype left, otherwise than by a line that changed: its row in `types` is mended.
function Heads.mend(jobtype)
  call.mends, call.is_moved = call.mends or {}, true
  call.mends[jobtype] = true
end

-- So many more wait in that queue, if it is a keyed one.
function Heads.count_keyed(queue, number)
  if number ~= 0 and Queues.is_keyed(queue) then
    local its = gathered_of(queue)
    its.count = its.count + number
  end
end

-- So many ids are in the pages of that queue now.
function Heads.note_paged(queue, number)
  call.paged_numbers, call.is_moved = call.paged_numbers or {}, true
  call.paged_numbers[queue] = number
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
  Heads.call_with(rows, 'HSET', K.paged)
  Heads.call_with(gone, 'HDEL', K.paged)
end

-- The best row of a jobtype in `queues` and `loose`, and its priority; nil, nil: none. Between two priorities, of all
-- if they are nil.
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

local function lead_of(jobtype, priority) return (Heads.best_keyed(jobtype, priority, priority)) end

-- The priority under which a job lies loose, or nil.
function Heads.is_loose(queue, id)
  return call.has_keyed and Queues.is_keyed(queue) and redis.call('ZSCORE', Queues.loose_key(queue),
    Queues.head_row(id, queue)) or nil
end

-- Takes a job out of the loose ones. Returns whether it was there.
function Heads.drop_loose(queue, id)
  local priority = Heads.is_loose(queue, id)
  if priority then
    local row = Queues.head_row(id, queue)
    Heads.count_keyed(queue, -redis.call('ZREM', Queues.loose_key(queue), row))
    redis.call('ZREM', Queues.all_of(queue), row)
    Heads.note_taken(queue, {[priority] = true}, {})
    Heads.mend(Queues.type_of(queue))
  end
  return priority ~= nil
end

-- Where jobs age each queue has its jobs together, for those that had dates go by what stands behind them (ageing.lua).
function starts.may_loosen() return not is_here('aged') end

-- Whether jobs that come for that queue may lie loose.
function Heads.may_loosen(queue)
  return Queues.is_keyed(queue) and call.may_loosen
end

-- Jobs come loose, or to their queue if that is parked.
function Heads.loosen(queue, priority, ids)
  local its = gathered_of(queue)
  its.loose[#its.loose + 1] = {queue = queue, priority = priority, ids = ids}
  its.priorities[tonumber(priority)], its.best = true, math.min(its.best, tonumber(priority))
end

-- These rows of the jobtype of that queue are loose no more. `priorities`: a table whose keys are theirs.
function Heads.note_taken(queue, priorities, rows)
  local its = gathered_of(queue)
  local taken, filled = its.taken, #its.taken
  for at = 1, #rows do
    taken[filled + at] = rows[at]
  end
  for priority in pairs(priorities) do
    its.priorities[tonumber(priority)] = true
  end
end

-- The row of a queue goes, for this call parks it.
function Heads.note_gone(priority, id, queue)
  local its = gathered_of(queue)
  its.gone[#its.gone + 1] = Queues.head_row(id, queue)
  its.priorities[tonumber(priority)] = true
end

-- After jobs of a parked queue came or left.
local function refresh(queue)
  local known, place = Queues.parked_at(queue)
  local id, priority = Queues.first_between(queue, '-inf', '+inf')
  if id ~= known then
    redis.call('ZREM', K.aside .. place, Queues.head_row(known, queue))
  end
  if id then
    redis.call('ZADD', K.aside .. place, priority, Queues.head_row(id, queue))
    redis.call('HSET', K.tied, queue, id .. ' ' .. place)
  else
    redis.call('HDEL', K.tied, queue)
  end
end

-- What comes loose; what is of a parked queue comes there.
local function write_loose(jobtype, its)
  local rows, queues = {}, {}
  for at, one in ipairs(its.loose) do
    queues[at] = one.queue
  end
  local tied = #queues > 0 and redis.call('EXISTS', K.tied) == 1 and redis.call('HMGET', K.tied, unpack(queues))
    or Choose.NOWHERE
  for at, one in ipairs(its.loose) do
    local is_parked = Queues.is_parked(tied[at])
    local words = is_parked and {} or rows
    for _, id in ipairs(one.ids) do
      words[#words + 1], words[#words + 2] = one.priority, is_parked and id or Queues.head_row(id, one.queue)
    end
    if is_parked then
      its.count = its.count + redis.call('ZADD', ready_key(one.queue), unpack(words))
      refresh(one.queue)
    end
  end
  its.count = its.count + Heads.call_with(rows, 'ZADD', K.loose .. jobtype)
end

-- Calls a command with all these words, in as many calls as it takes: `unpack` ends a function at some 8,000 words,
-- after what it had written. Returns the sum of the answers.
function Heads.call_with(words, command, key)
  local sum = 0
  for at = 1, #words, 1000 do
    sum = sum + redis.call(command, key, unpack(words, at, math.min(at + 999, #words)))
  end
  return sum
end

-- The rows of lines of queues that are not parked, by priority; those that they had are added to `gone`.
local function rows_of(its)
  local rows, tied, fresh, queues, new = {}, {}, {}, {}, {}
  for at, line in ipairs(its.lines) do
    queues[at] = line.queue
  end
  if #queues > 0 and redis.call('EXISTS', K.tied) == 1 then
    tied = redis.call('HMGET', K.tied, unpack(queues))
  end
  for at, line in ipairs(its.lines) do
    local queue, priority = line.queue, line.priority
    its.priorities[tonumber(priority)] = true
    local is_parked = Queues.is_parked(tied[at])
    if is_parked and not fresh[queue] then
      refresh(queue)
      Heads.mend(its.jobtype)  -- this may have been its last one
      fresh[queue] = true
    elseif not is_parked then
      for _, row in ipairs(find_head(line)) do
        its.gone[#its.gone + 1] = row
      end
      local head = line.head
      if not head then  -- the next one may have no row: a queue is let go with those of its first priorities
        Heads.mend(its.jobtype)
        head, priority = Queues.first_between(queue, '(' .. priority, '+inf')
      end
      if head then
        its.priorities[tonumber(priority)] = true
        rows[#rows + 1], rows[#rows + 2] = priority, Queues.head_row(head, queue)
      end
      if head and not tied[at] then
        new[#new + 1], new[#new + 2] = queue, ''
      elseif not head and not Queues.first_between(queue, '-inf', '+inf') then
        redis.call('HDEL', K.tied, queue)
      end
    end
  end
  Heads.call_with(new, 'HSET', K.tied)
  return rows
end

local function write_gathered(its)
  local jobtype, leads, old, new = its.jobtype, {}, {}, {}
  local index, all, rows = K.queues .. jobtype, Queues.all_of(jobtype), rows_of(its)
  for priority in pairs(its.priorities) do
    leads[priority] = lead_of(jobtype, priority) or ''
  end
  write_loose(jobtype, its)
  its.count = its.count - Heads.call_with(its.taken, 'ZREM', K.loose .. jobtype)
  Heads.call_with(its.gone, 'ZREM', index)
  Heads.call_with(rows, 'ZADD', index)
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
  if its.count ~= 0 then
    Queues.begin_keyed()
    if redis.call('HINCRBY', K.keyed, jobtype, its.count) <= 0 then
      redis.call('HDEL', K.keyed, jobtype)
    end
  end
  if its.best < math.huge then
    redis.call('ZADD', K.types, 'LT', its.best, jobtype)
  end
end

-- Writes what changed in the indexes, once, and begins anew.
function Heads.write()
  if not call.is_moved then
    return
  end
  if call.paged_numbers then
    write_paged()
  end
  local lines = call.lines
  for _, line in ipairs(lines) do
    local queue = line.queue
    if Queues.is_keyed(queue) then
      local its = gathered_of(queue)
      its.lines[#its.lines + 1] = line
    else
      Heads.call_with(find_head(line), 'ZREM', Queues.all_of(queue))
      if not line.head then
        Heads.mend(queue)
      end
    end
  end
  -- when none has the row of another any more: a job may have come from one of these to the other
  for _, line in ipairs(lines) do
    if line.head and not Queues.is_keyed(line.queue) then
      redis.call('ZADD', Queues.all_of(line.queue), line.priority, Queues.head_row(line.head, line.queue))
    end
  end
  for _, its in ipairs(call.gathered_types) do
    write_gathered(its)
  end
  for jobtype in pairs(call.mends or Choose.NOWHERE) do
    Pages.mend_type(jobtype)
  end
  call.lines, call.lines_of, call.gathered, call.gathered_types = nil, nil, nil, nil
  call.mends, call.paged_numbers, call.is_moved = nil, nil, false
end
