-- How many jobs of each jobtype stand how, kept by whatever moves a job.
--
--     counts     hash  "of:<jobtype>", "all" → row of numbers, see NUMBERS; no row where all would be 0
--
-- Gives moved(jobtype, from, to, ids, jobtype_before): jobs that stood so stand so now; nil: they were not here, or are deleted;
-- `ids`: a list, or one; jobtype_before: of their rows, if that was another. have_failed(row of `tries`): whether that job did;
-- waits(id, otherwise): how a job stands that waits. write_counts(now_ms): all of it, once, at the end of the function; what ended expires no more.
-- Cost: nothing while nothing moves; two calls for all that moved, one for those that ended. Who wrote something else under the key stops no job: looks tell it.
-- Numbers of jobs by how they stand; then minute, and of it and of the last one before it: pushed, started, ended, failed.
local NUMBERS = {
  waiting = 1, scheduled = 2, running = 3, retrying = 4, succeeded = 5, failed = 6, cancelled = 7,
  minute = 8, pushed = 9, started = 10, ended = 11, failures = 12, before = 4, blocked = 17, all = 17,
}
-- Jobs that wait for parents (links.lua): MS, the date that they have (domain/flow.py); stands(at_ms): how a job stands that has this date;
-- note(id, at_ms, now_ms): its parents are to be asked, if that is it; note_ends(ids, now_ms): children are to be told.
Counts.BLOCKED_MS = 253402300800000
function starts.has_linked() return expect_rare('linked', 'links') or expect_rare('links') end

function Counts.date_stands(at_ms)
  return tonumber(at_ms) >= Counts.BLOCKED_MS and 'blocked' or 'scheduled'
end

function Counts.note_blocked(id, at_ms, now_ms)
  if at_ms >= Counts.BLOCKED_MS then
    redis.call('ZADD', K.links, now_ms, 'w' .. id)
  end
end

function Counts.note_ends(ids, now_ms)
  if redis.call('EXISTS', K.linked) == 1 then
    local rows = {}
    for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
      if is_linked then
        rows[#rows + 1], rows[#rows + 2] = now_ms, 'e' .. ids[at]
      end
    end
    if #rows > 0 then
      redis.call('ZADD', K.links, unpack(rows))
    end
  end
end

local MS, ENDED = 60000, {succeeded = true, failed = true, cancelled = true}
starts.moves, starts.ended = empty, empty

-- Jobs that are told one by one and moved alike are one move: to note each by itself cost an eighth of all that a job costs.
function Counts.moved(queue, from, to, ids, queue_before)
  local last, number = call.moves[#call.moves], type(ids) == 'table' and #ids or 1
  for at = 1, ENDED[to] and not ENDED[from] and number or 0 do
    call.ended[#call.ended + 1] = type(ids) == 'table' and ids[at] or ids
  end
  if last and last.queue == queue and last.from == from and last.to == to and last.queue_before == queue_before then
    last.number = last.number + number
    return
  end
  local jobtype, jobtype_before = queue:match('^[^\30]*'), queue_before and queue_before:match('^[^\30]*')
  if number > 0 and (from ~= to or (jobtype_before or jobtype) ~= jobtype) then
    call.moves[#call.moves + 1] = {
      queue = queue, queue_before = queue_before, jobtype = jobtype, before = jobtype_before or jobtype, from = from, to = to, number = number,
    }
  end
end

function Counts.have_failed(row)
  return row and #row >= 4 and struct.unpack('>I4', row) > 0
end

function Counts.waits(id, otherwise)
  return Counts.have_failed(redis.call('HGET', K.tries, id)) and 'retrying' or otherwise
end

-- Field → what is to be added to which number of its row.
local function sums()
  local deltas = {all = {}}
  local function note(jobtype, what, number)
    local field = 'of:' .. jobtype
    deltas[field] = deltas[field] or {}
    for _, row in ipairs({deltas[field], deltas.all}) do
      row[what] = (row[what] or 0) + number
    end
  end
  for _, move in ipairs(call.moves) do
    local jobtype, from, to, number = move.jobtype, move.from, move.to, move.number
    if from then
      note(move.before, from, -number)
    end
    if to then
      note(jobtype, to, number)
    end
    note(jobtype, 'pushed', from and 0 or number)
    note(jobtype, 'started', from and from ~= to and to == 'running' and number or 0)
    note(jobtype, 'ended', ENDED[to] and not ENDED[from] and number or 0)
    note(jobtype, 'failures', to == 'failed' and not ENDED[from] and number or 0)
  end
  return deltas
end

-- Numbers of a row, with what moved since, and how many jobs they are. Its minutes are those of `minute`. None falls below 0: others than these
-- functions moved those jobs.
local function summed(row, delta, minute)
  local numbers, jobs, FIRST, LAST = {}, 0, NUMBERS.pushed, NUMBERS.failures
  for text in (row or ''):gmatch('%d+') do
    numbers[#numbers + 1] = tonumber(text)
  end
  local past = minute - (numbers[NUMBERS.minute] or 0)
  for at = 1, NUMBERS.all do
    numbers[at] = numbers[at] or 0
  end
  for at = past ~= 0 and FIRST or LAST + 1, LAST do
    numbers[at + NUMBERS.before] = past == 1 and numbers[at] or 0
    numbers[at] = 0
  end
  numbers[NUMBERS.minute] = minute
  for what, number in pairs(delta) do
    numbers[NUMBERS[what]] = math.max(0, numbers[NUMBERS[what]] + number)
  end
  for at = 1, NUMBERS.cancelled do
    jobs = jobs + numbers[at]
  end
  return numbers, jobs + numbers[NUMBERS.blocked]
end

function Counts.write_counts(now_ms)
  if #call.ended > 0 and redis.call('EXISTS', K.expiring) == 1 then
    pcall(redis.call, 'ZREM', K.expiring, unpack(call.ended))
  end
  if #call.ended > 0 and call.has_linked then  -- no function ends jobs and links some
    Counts.note_ends(call.ended, now_ms)
  end
  call.ended = {}
  if #call.moves == 0 then
    return
  end
  local deltas, fields = sums(), {}
  for field in pairs(deltas) do
    fields[#fields + 1] = field
  end
  call.moves = {}
  local good, rows = pcall(redis.call, 'HMGET', K.counts, unpack(fields))
  if not good then
    return
  end
  local new, gone = {}, {}
  for at, row in ipairs(rows) do
    local numbers, jobs = summed(row, deltas[fields[at]], math.floor(now_ms / MS))
    if jobs == 0 and fields[at] ~= 'all' then
      gone[#gone + 1] = fields[at]
    else
      new[#new + 1], new[#new + 2] = fields[at], table.concat(numbers, ' ')
    end
  end
  redis.call('HSET', K.counts, unpack(new))
  if #gone > 0 then
    redis.call('HDEL', K.counts, unpack(gone))
  end
end
