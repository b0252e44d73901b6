-- How many jobs of each jobtype stand how, kept by whatever moves a job. Needs keys.
--
--     counts     hash  "of:<jobtype>", "all" → row of numbers, see NUMBERS; no row where all would be 0
--                      "state" → "exact", or "counting <run of the server> <cursor>" while jobs are counted that an older jqd left;
--                      nothing: nobody has begun to count them, and numbers say nothing
--     counting   hash  ids that are counted already, while others are not
--
-- Gives moved(jobtype, from, to, ids, jobtype_before): jobs that stood so stand so now; nil: they were not here, or are deleted;
-- `ids`: a list, or one; jobtype_before: of their rows, if that was another. have_failed(row of `tries`): whether that job did;
-- waits(id, otherwise): how a job stands that waits. write_counts(now_ms, is_old): all of it, once, at the end of the script; is_old: it
-- did not happen now. counts_state() → state, whether the counts are exact.
-- Cost: nothing while nothing moves; two calls for all that moved. Who wrote something else under the key stops no job: `count_jobs` tells it.
-- Numbers of jobs by how they stand; then minute, and of it and of the last one before it: pushed, started, ended, failed.
local NUMBERS = {
  waiting = 1, scheduled = 2, running = 3, retrying = 4, succeeded = 5, failed = 6, cancelled = 7,
  minute = 8, pushed = 9, started = 10, ended = 11, failures = 12, before = 4, all = 16,
}
local moved, have_failed, waits, write_counts, counts_state
do
  local MS, ENDED, moves = 60000, {succeeded = true, failed = true, cancelled = true}, {}
  local AT_ONCE = 1000  -- ids of one move, which are arguments of one call

  -- Jobs that are told one by one and moved alike are one move: to note each by itself cost an eighth of all that a job costs.
  function moved(queue, from, to, ids, queue_before)
    local last = moves[#moves]
    if last and last.ones and last.queue == queue and last.from == from and last.to == to and last.queue_before == queue_before
      and type(ids) == 'string' and #last.ids < AT_ONCE then
      last.ids[#last.ids + 1] = ids
      return
    end
    local jobtype, jobtype_before = queue:match('^[^\30]*'), queue_before and queue_before:match('^[^\30]*')
    if #ids > 0 and (from ~= to or (jobtype_before or jobtype) ~= jobtype) then
      local ones = type(ids) == 'string'
      moves[#moves + 1] = {
        queue = queue, queue_before = queue_before, jobtype = jobtype, before = jobtype_before or jobtype, from = from, to = to,
        ids = ones and {ids} or ids, ones = ones,
      }
    end
  end

  function have_failed(row)
    return row and #row >= 4 and struct.unpack('>I4', row) > 0
  end

  function waits(id, otherwise)
    return have_failed(redis.call('HGET', K.tries, id)) and 'retrying' or otherwise
  end

  -- A store without jobs is counted already.
  function counts_state()
    local state = redis.call('HGET', K.counts, 'state')
    return state, state == 'exact' or not state and redis.call('EXISTS', K.jobs) == 0
  end

  -- How many of those that moved are counted already, while others are not.
  local function counted(move)
    local ids, number = move.ids, 0
    if not move.from then
      local marks = {}
      for at, id in ipairs(ids) do
        marks[2 * at - 1], marks[2 * at] = id, ''
      end
      redis.call('HSET', K.counting, unpack(marks))
      return #ids
    end
    for _, mark in ipairs(redis.call('HMGET', K.counting, unpack(ids))) do
      number = number + (mark and 1 or 0)
    end
    if not move.to then
      redis.call('HDEL', K.counting, unpack(ids))
    end
    return number
  end

  local function counted_as(jobtype) return 'of:' .. jobtype end

  -- Field → what is to be added to which number of its row.
  local function sums(is_part, is_old)
    local deltas = {all = {}}
    local function note(jobtype, what, number)
      local field = counted_as(jobtype)
      deltas[field] = deltas[field] or {}
      for _, row in ipairs({deltas[field], deltas.all}) do
        row[what] = (row[what] or 0) + number
      end
    end
    for _, move in ipairs(moves) do
      local jobtype, from, to = move.jobtype, move.from, move.to
      local number = is_part and counted(move) or not is_part and #move.ids
      if from then
        note(move.before, from, -number)
      end
      if to then
        note(jobtype, to, number)
      end
      if not is_old then
        number = #move.ids  -- it happened now, whether or not these were found by now
        note(jobtype, 'pushed', from and 0 or number)
        note(jobtype, 'started', from and from ~= to and to == 'running' and number or 0)
        note(jobtype, 'ended', ENDED[to] and not ENDED[from] and number or 0)
        note(jobtype, 'failures', to == 'failed' and not ENDED[from] and number or 0)
      end
    end
    return deltas
  end

  -- Numbers of a row, with what moved since. Its minutes are those of `minute`.
  local function summed(row, delta, minute)
    local numbers, FIRST, LAST = {}, NUMBERS.pushed, NUMBERS.failures
    for text in (row or ''):gmatch('%d+') do
      numbers[#numbers + 1] = tonumber(text)
    end
    local past = minute - (numbers[NUMBERS.minute] or 0)
    for at = 1, NUMBERS.all do
      numbers[at] = numbers[at] or 0
    end
    for at = past > 0 and FIRST or LAST + 1, LAST do
      numbers[at + NUMBERS.before] = past == 1 and numbers[at] or 0
      numbers[at] = 0
    end
    numbers[NUMBERS.minute] = math.max(minute, numbers[NUMBERS.minute])
    for what, number in pairs(delta) do
      numbers[NUMBERS[what]] = numbers[NUMBERS[what]] + number
    end
    return numbers
  end

  -- How many jobs they are; -1 when a number is below 0.
  local function jobs_in(numbers)
    local sum = 0
    for at = 1, NUMBERS.cancelled do
      if numbers[at] < 0 then
        return -1
      end
      sum = sum + numbers[at]
    end
    return sum
  end

  -- A number below 0 says that something was moved by others than these scripts: all are counted anew then.
  function write_counts(now_ms, is_old)
    if #moves == 0 then
      return
    end
    local fields, listed = {'all'}, {}
    for _, move in ipairs(moves) do
      for _, jobtype in ipairs({move.jobtype, move.before}) do
        if not listed[jobtype] then
          fields[#fields + 1], listed[jobtype] = counted_as(jobtype), true
        end
      end
    end
    local good, rows = pcall(redis.call, 'HMGET', K.counts, 'state', unpack(fields))
    if not good then
      return
    end
    local state = table.remove(rows, 1)
    local is_part = state and state ~= 'exact'
    if is_part and not ({none = true, hash = true})[redis.call('TYPE', K.counting)['ok']] then
      return
    end
    local deltas = sums(is_part, is_old)
    moves = {}
    -- Without a state all jobs must be those that this script has brought.
    if not state and redis.call('HLEN', K.jobs) ~= jobs_in(summed(nil, deltas.all, 0)) then
      return
    end
    local new, gone = {}, {}
    for at, row in ipairs(rows) do
      local numbers = summed(row, deltas[fields[at]], math.floor(now_ms / MS))
      local jobs = jobs_in(numbers)
      if jobs < 0 then
        redis.call('HDEL', K.counts, 'state')
        return
      elseif jobs == 0 and fields[at] ~= 'all' then
        gone[#gone + 1] = fields[at]
      else
        new[#new + 1], new[#new + 2] = fields[at], table.concat(numbers, ' ')
      end
    end
    if not state then
      new[#new + 1], new[#new + 2] = 'state', 'exact'
    end
    redis.call('HSET', K.counts, unpack(new))
    if #gone > 0 then
      redis.call('HDEL', K.counts, unpack(gone))
    end
  end
end
