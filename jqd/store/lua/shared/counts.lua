-- Numbers of jobs by jobtype and state, and totals. Whoever moves a job notes the move; all are written at the end of
-- the function, so the numbers are always those of the sets.
--
--     counts     hash  "<name>:<jobtype>", and "<name>" for all jobtypes → number; no field for 0
--     died       hash  jobtype → how many jobs the store itself ended (they expired, or were alone in flight at
--                      too many deaths) since a daemon asked
--
-- Names are those of STATES, and of totals, which only grow: `pushed` (jobs that came, or became of that type),
-- `started`, `ended`, `failures`. Readers subtract them. The fields of a jobtype go with its last job. A foreign value
-- under the key stops no job: looks report it.
Counts.STATES = {'waiting', 'scheduled', 'running', 'retrying', 'succeeded', 'failed', 'cancelled', 'blocked'}
Counts.TOTALS = {'pushed', 'started', 'ended', 'failures'}

local function fields_of(jobtype)
  local fields = {}
  for _, names in ipairs({Counts.STATES, Counts.TOTALS}) do
    for _, name in ipairs(names) do
      fields[#fields + 1] = jobtype and name .. ':' .. jobtype or name
    end
  end
  return fields
end

-- Returns the numbers of a jobtype, or of all: STATES, then TOTALS; false for 0.
function Counts.read(jobtype)
  return redis.call('HMGET', K.counts, unpack(fields_of(jobtype)))
end

-- Jobs that wait for parents have this date (domain/flow.py, links.lua).
Counts.BLOCKED_MS = 253402300800000
function starts.has_linked() return is_here('linked') or is_here('links') end

-- Returns the state of a job that waits for that date.
function Counts.date_stands(at_ms)
  return tonumber(at_ms) >= Counts.BLOCKED_MS and 'blocked' or 'scheduled'
end

-- Notes that the parents of a job are to be asked, if it is blocked.
function Counts.note_blocked(id, at_ms, now_ms)
  if at_ms >= Counts.BLOCKED_MS then
    redis.call('ZADD', K.links, now_ms, 'w' .. id)
  end
end

-- Notes that the children of these jobs are to be told.
function Counts.note_ends(ids, now_ms)
  if call.has_linked then
    local rows = {}
    for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
      if is_linked == '0' then
        rows[#rows + 1], rows[#rows + 2] = now_ms, 'e' .. ids[at]
      end
    end
    if #rows > 0 then
      redis.call('ZADD', K.links, unpack(rows))
    end
  end
end

Counts.ENDED = {succeeded = true, failed = true, cancelled = true}
starts.moves, starts.ended = empty, empty

-- Notes that jobs, a list or one, went from one state to another; nil: they were not here, or are deleted.
-- `queue_before`: their queue before, if it was another. Equal moves in a row become one: to note each by itself cost
-- an eighth of all that a job costs.
function Counts.moved(queue, from, to, ids, queue_before)
  local last, number = call.moves[#call.moves], type(ids) == 'table' and #ids or 1
  for at = 1, Counts.ENDED[to] and not Counts.ENDED[from] and number or 0 do
    call.ended[#call.ended + 1] = type(ids) == 'table' and ids[at] or ids
  end
  if last and last.queue == queue and last.from == from and last.to == to and last.queue_before == queue_before then
    last.number = last.number + number
    return
  end
  local jobtype, jobtype_before = queue:match('^[^\30]*'), queue_before and queue_before:match('^[^\30]*')
  if number > 0 and (from ~= to or (jobtype_before or jobtype) ~= jobtype) then
    call.moves[#call.moves + 1] = {
      queue = queue, queue_before = queue_before, jobtype = jobtype, before = jobtype_before or jobtype, from = from,
      to = to, number = number,
    }
  end
end

-- Returns whether a job failed, by its row of `tries`.
function Counts.have_failed(row)
  return row and #row >= 4 and struct.unpack('>I4', row) > 0
end

-- Returns the state of a waiting job; `at_ms`: the date that it waits for, or nil.
function Counts.waits(id, at_ms)
  return Counts.have_failed(redis.call('HGET', K.tries, id)) and 'retrying'
    or at_ms and Counts.date_stands(at_ms) or 'waiting'
end

-- Returns field → what to add to it; and the jobtypes that jobs left.
local function sums()
  local steps, left = {}, {}
  local function add(name, jobtype, number)
    local field = name .. ':' .. jobtype
    steps[field], steps[name] = (steps[field] or 0) + number, (steps[name] or 0) + number
  end
  for _, move in ipairs(call.moves) do
    local jobtype, before, from, to, number = move.jobtype, move.before, move.from, move.to, move.number
    if from then
      add(from, before, -number)
      left[before] = (not to or before ~= jobtype) or left[before]
    end
    if to then
      add(to, jobtype, number)
    end
    if to and (not from or before ~= jobtype) then
      add('pushed', jobtype, number)
    end
    if to == 'running' and from and from ~= to then
      add('started', jobtype, number)
    elseif Counts.ENDED[to] and not Counts.ENDED[from] then
      add('ended', jobtype, number)
      if to == 'failed' then
        add('failures', jobtype, number)
      end
    end
  end
  call.moves = {}
  return steps, left
end

-- Counts a job of a queue that the store itself ended: no outcome tells a daemon of it.
function Counts.died(queue)
  local jobtype = queue:match('^[^\30]*')
  call.died = call.died or {}
  call.died[jobtype] = (call.died[jobtype] or 0) + 1
end

-- Returns and forgets jobtype, number …: jobs that the store itself ended.
function Counts.take_died()
  local rows = redis.call('HGETALL', K.died)
  if #rows > 0 then
    redis.call('UNLINK', K.died)
  end
  return rows
end

-- Drops the fields of a jobtype if it has no jobs any more.
local function drop_totals(jobtype)
  local good, numbers = pcall(Counts.read, jobtype)
  for at = 1, good and #Counts.STATES or 0 do
    good = good and not numbers[at]
  end
  if good then
    redis.call('HDEL', K.counts, unpack(fields_of(jobtype)))
  end
end

local AT_ONCE = 1000  -- fields: `unpack` ends a function at some 8,000 words

-- Adds up and writes. No number falls below 0, even if jobs were moved by others than these functions.
local function write_sums()
  local steps, left = sums()
  local fields, new, gone = {}, {}, {}
  for field, step in pairs(steps) do
    fields[#fields + 1] = step ~= 0 and field or nil
  end
  for first = 1, #fields, AT_ONCE do
    local known = redis.pcall('HMGET', K.counts, unpack(fields, first, math.min(first + AT_ONCE - 1, #fields)))
    for at = 1, known.err and 0 or #known do
      local field = fields[first + at - 1]
      local number = (tonumber(known[at] or nil) or 0) + steps[field]
      if number > 0 then
        new[#new + 1], new[#new + 2] = field, string.format('%.0f', number)
      elseif known[at] then
        gone[#gone + 1] = field
      end
    end
  end
  Index.call_with(new, 'HSET', K.counts)
  Index.call_with(gone, 'HDEL', K.counts)
  for jobtype in pairs(left) do
    drop_totals(jobtype)
  end
end

-- Writes all that was noted, at the end of a function: a call for each number that changes. Jobs that ended are dropped
-- from `expiring` and `deaths`.
function Counts.write_counts(now_ms)
  Index.write()
  Stands.count_watched()
  if #call.ended > 0 and call.has_expiring then
    pcall(redis.call, 'ZREM', K.expiring, unpack(call.ended))
  end
  if #call.ended > 0 and call.has_deaths then  -- claims read all of them
    pcall(redis.call, 'HDEL', K.deaths, unpack(call.ended))
  end
  if #call.ended > 0 and call.has_linked then  -- no function ends jobs and links some
    Counts.note_ends(call.ended, now_ms)
  end
  call.ended = {}
  if #call.moves > 0 then
    write_sums()
  end
  for jobtype, number in pairs(call.died or {}) do
    redis.pcall('HINCRBY', K.died, jobtype, number)
  end
  call.died = nil
end
