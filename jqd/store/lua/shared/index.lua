-- The indexes of ready jobs: which job is next of each jobtype and priority. Every priority under which jobs of a queue
-- wait has one row, that of its first job, unless the queue is parked. So the best jobs of any range of priorities are
-- found, whatever waits outside of it.
--
--     index            zset  "<id>:<queue>" → priority: the first job of each jobtype and priority. For the keyed
--                            queues of a jobtype there is one row a priority, of the best job in `queues` and `loose`
--     queues:<tenant>\31 zset  the same for one tenant; `index` is that of the tenant ""
--     queues:<jobtype> zset  such rows, of each keyed queue of a jobtype
--     loose:<jobtype>  zset  such rows, each of a job that waits in no queue: few came at once for its queue. It stays
--                            here until it must wait for a constraint
--     tied             hash  keyed queue with jobs that are not loose → "", or, if it is parked, "<id> <place>": its
--                            first job and where it waits (parked.lua); then it has no row above
--     throttled:<place>    zset  "<id>:<queue>" → priority: the first job of each queue that is parked there
--
-- A *line* is the jobs of a queue under one priority. Calls only note which lines change (`touch`, `came`); `write`
-- brings the indexes up to date, once, for a command for each of hundreds of queues would cost more than all else. It
-- runs before jobs leave their places (about.lua) and before their rows are written.
starts.lines, starts.lines_of, starts.gathered, starts.gathered_types = empty, empty, empty, empty
local function none() return false end
-- jobtypes (as keys) whose rows in `types` are to be mended; queue → its number of ids in pages
starts.mends, starts.paged_numbers = none, none

-- Returns the changes to be written for the keyed queues of a jobtype.
local function gathered_of(queue)
  local changes = call.gathered[queue]
  if not changes then
    local jobtype = Queues.type_of(queue)
    changes = call.gathered[jobtype]
    if not changes then
      changes = {jobtype = jobtype, gone = {}, lines = {}, priorities = {}, loose = {}, taken = {}, count = 0,
        best = math.huge}
      call.gathered_types[#call.gathered_types + 1], call.gathered[jobtype], call.is_moved = changes, changes, true
    end
    call.gathered[queue] = changes
  end
  return changes
end

-- Notes that a line changed. `known`: the job that had its row; `head`: its first job now; nil: to be looked up; false:
-- the line is empty.
function Index.touch(queue, priority, known, head)
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

-- Finds the first job of a line. Returns rows of other jobs that the line may have had.
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

-- Notes that a job came. `leads`: it is the first of its line, and `known` was before (Queues.may_lead).
function Index.came(queue, priority, leads, known, id)
  if leads then
    Index.touch(queue, priority, known, id)
  end
  if Queues.is_keyed(queue) then
    local changes = gathered_of(queue)
    changes.best = math.min(changes.best, tonumber(priority))
  elseif leads then
    redis.call('ZADD', K.types, 'LT', priority, queue)
  end
end

-- Notes that jobs of a jobtype left, so that its row in `types` is mended.
function Index.mend(jobtype)
  call.mends, call.is_moved = call.mends or {}, true
  call.mends[jobtype] = true
end

-- Counts so many more jobs in a queue, if it is keyed.
function Index.count_keyed(queue, number)
  if number ~= 0 and Queues.is_keyed(queue) then
    local changes = gathered_of(queue)
    changes.count = changes.count + number
  end
end

-- Notes how many ids a queue has in pages now.
function Index.note_paged(queue, number)
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
  Index.call_with(rows, 'HSET', K.paged)
  Index.call_with(gone, 'HDEL', K.paged)
end

-- Returns the best row of a jobtype in `queues` and `loose`, and its priority; nil if there is none. `from`, `to`: only
-- between these priorities.
function Index.best_keyed(jobtype, from, to)
  local function first_of(index)
    return unpack(redis.call('ZRANGE', index, from or '-inf', to or '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  end
  local row, priority = first_of(K.queues .. jobtype)
  local loose, loose_priority = first_of(K.loose .. jobtype)
  if loose and not (row and Order.precedes(tonumber(priority), row, tonumber(loose_priority), loose)) then
    return loose, loose_priority
  end
  return row, priority
end

local function lead_of(jobtype, priority) return (Index.best_keyed(jobtype, priority, priority)) end

-- Returns the priority of a job that is loose, or nil.
function Index.is_loose(queue, id)
  return call.has_keyed and Queues.is_keyed(queue) and redis.call('ZSCORE', Queues.loose_key(queue),
    Queues.head_row(id, queue)) or nil
end

-- Removes a job from `loose`. Returns whether it was there.
function Index.drop_loose(queue, id)
  local priority = Index.is_loose(queue, id)
  if priority then
    local row = Queues.head_row(id, queue)
    Index.count_keyed(queue, -redis.call('ZREM', Queues.loose_key(queue), row))
    redis.call('ZREM', Queues.all_of(queue), row)
    Index.note_taken(queue, {[priority] = true}, {})
    Index.mend(Queues.type_of(queue))
  end
  return priority ~= nil
end

-- Where jobs age none is loose: a job that had a date is ordered by the period in its score (ageing.lua).
function starts.may_loosen() return not is_here('aged') end

-- Returns whether jobs that come for that queue may be loose.
function Index.may_loosen(queue)
  return Queues.is_keyed(queue) and call.may_loosen
end

-- Adds loose jobs; to their queue if that is parked.
function Index.loosen(queue, priority, ids)
  local changes = gathered_of(queue)
  changes.loose[#changes.loose + 1] = {queue = queue, priority = priority, ids = ids}
  changes.priorities[tonumber(priority)], changes.best = true, math.min(changes.best, tonumber(priority))
end

-- Notes that these rows are loose no more. `priorities`: theirs, as keys.
function Index.note_taken(queue, priorities, rows)
  local changes = gathered_of(queue)
  local taken, filled = changes.taken, #changes.taken
  for at = 1, #rows do
    taken[filled + at] = rows[at]
  end
  for priority in pairs(priorities) do
    changes.priorities[tonumber(priority)] = true
  end
end

-- Notes that a row goes, for this call parks its queue.
function Index.note_gone(priority, id, queue)
  local changes = gathered_of(queue)
  changes.gone[#changes.gone + 1] = Queues.head_row(id, queue)
  changes.priorities[tonumber(priority)] = true
end

-- Brings the row of a parked queue up to date, after jobs came or left.
local function refresh(queue)
  local known, place = Queues.parked_at(queue)
  local id, priority = Queues.first_between(queue, '-inf', '+inf')
  if id ~= known then
    redis.call('ZREM', K.throttled .. place, Queues.head_row(known, queue))
  end
  if id then
    redis.call('ZADD', K.throttled .. place, priority, Queues.head_row(id, queue))
    redis.call('HSET', K.tied, queue, id .. ' ' .. place)
  else
    redis.call('HDEL', K.tied, queue)
  end
end

-- Writes the jobs that come loose; those of parked queues go to their queue.
local function write_loose(jobtype, changes)
  local rows, queues = {}, {}
  for at, one in ipairs(changes.loose) do
    queues[at] = one.queue
  end
  local tied = #queues > 0 and redis.call('EXISTS', K.tied) == 1 and redis.call('HMGET', K.tied, unpack(queues))
    or Choose.NOWHERE
  for at, one in ipairs(changes.loose) do
    local is_parked = Queues.is_parked(tied[at])
    local words = is_parked and {} or rows
    for _, id in ipairs(one.ids) do
      words[#words + 1], words[#words + 2] = one.priority, is_parked and id or Queues.head_row(id, one.queue)
    end
    if is_parked then
      changes.count = changes.count + redis.call('ZADD', ready_key(one.queue), unpack(words))
      refresh(one.queue)
    end
  end
  changes.count = changes.count + Index.call_with(rows, 'ZADD', K.loose .. jobtype)
end

-- Calls a command with any number of words, 1,000 at a time: `unpack` fails at some 8,000, when other things are
-- written. Returns the sum of the answers.
function Index.call_with(words, command, key)
  local sum = 0
  for at = 1, #words, 1000 do
    sum = sum + redis.call(command, key, unpack(words, at, math.min(at + 999, #words)))
  end
  return sum
end

-- Returns rows for the lines of queues that are not parked, by priority; adds their earlier rows to `gone`.
local function rows_of(changes)
  local rows, tied, fresh, queues, new = {}, {}, {}, {}, {}
  for at, line in ipairs(changes.lines) do
    queues[at] = line.queue
  end
  if #queues > 0 and redis.call('EXISTS', K.tied) == 1 then
    tied = redis.call('HMGET', K.tied, unpack(queues))
  end
  for at, line in ipairs(changes.lines) do
    local queue, priority = line.queue, line.priority
    changes.priorities[tonumber(priority)] = true
    local is_parked = Queues.is_parked(tied[at])
    if is_parked and not fresh[queue] then
      refresh(queue)
      Index.mend(changes.jobtype)  -- that may have been the queue's last job
      fresh[queue] = true
    elseif not is_parked then
      for _, row in ipairs(find_head(line)) do
        changes.gone[#changes.gone + 1] = row
      end
      local head = line.head
      if not head then  -- the next line may have no row: when a queue is let go, only its first priorities get one
        Index.mend(changes.jobtype)
        head, priority = Queues.first_between(queue, '(' .. priority, '+inf')
      end
      if head then
        changes.priorities[tonumber(priority)] = true
        rows[#rows + 1], rows[#rows + 2] = priority, Queues.head_row(head, queue)
      end
      if head and not tied[at] then
        new[#new + 1], new[#new + 2] = queue, ''
      elseif not head and not Queues.first_between(queue, '-inf', '+inf') then
        redis.call('HDEL', K.tied, queue)
      end
    end
  end
  Index.call_with(new, 'HSET', K.tied)
  return rows
end

local function write_gathered(changes)
  local jobtype, leads, old, new = changes.jobtype, {}, {}, {}
  local index, all, rows = K.queues .. jobtype, Queues.all_of(jobtype), rows_of(changes)
  for priority in pairs(changes.priorities) do
    leads[priority] = lead_of(jobtype, priority) or ''
  end
  write_loose(jobtype, changes)
  changes.count = changes.count - Index.call_with(changes.taken, 'ZREM', K.loose .. jobtype)
  Index.call_with(changes.gone, 'ZREM', index)
  Index.call_with(rows, 'ZADD', index)
  for priority, before in pairs(leads) do
    local lead = lead_of(jobtype, priority)
    if before ~= '' and before ~= lead then
      old[#old + 1] = before
    end
    if lead then
      new[#new + 1], new[#new + 2] = priority, lead
    end
  end
  Index.call_with(old, 'ZREM', all)
  Index.call_with(new, 'ZADD', all)
  if changes.count ~= 0 then
    Queues.begin_keyed()
    if redis.call('HINCRBY', K.keyed, jobtype, changes.count) <= 0 then
      redis.call('HDEL', K.keyed, jobtype)
    end
  end
  if changes.best < math.huge then
    redis.call('ZADD', K.types, 'LT', changes.best, jobtype)
  end
end

-- Writes all noted changes into the indexes.
function Index.write()
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
      local changes = gathered_of(queue)
      changes.lines[#changes.lines + 1] = line
    else
      Index.call_with(find_head(line), 'ZREM', Queues.all_of(queue))
      if not line.head then
        Index.mend(queue)
      end
    end
  end
  -- only now, that no job has the row of another queue any more: it may have come from one of these to the other
  for _, line in ipairs(lines) do
    if line.head and not Queues.is_keyed(line.queue) then
      redis.call('ZADD', Queues.all_of(line.queue), line.priority, Queues.head_row(line.head, line.queue))
    end
  end
  for _, changes in ipairs(call.gathered_types) do
    write_gathered(changes)
  end
  for jobtype in pairs(call.mends or Choose.NOWHERE) do
    Pages.mend_type(jobtype)
  end
  call.lines, call.lines_of, call.gathered, call.gathered_types = nil, nil, nil, nil
  call.mends, call.paged_numbers, call.is_moved = nil, nil, false
end
