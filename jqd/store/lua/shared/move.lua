-- Rows of jobs, and moving jobs between the sets. A function either only adds or says that it removes: a job is added
-- to its new place first. Notes in `tombstones` are a letter and the id: c cancel, s success, d failure for good,
-- r retry.
Move.CANCELLED = 'C'  -- in `outcome`: a cancel ended the job; the outcome of its last attempt may follow
Move.CRASHED = 'X'  -- in `outcome`: it was alone in flight at that many deaths
Move.EXPIRED = 'E'  -- in `outcome`: no attempt had begun at that instant (ms)
Move.MEANT = 'G'  -- in `outcome`, before an outcome of a later content than the first: "G<generation>:"
local ELIGIBLE, NAME, KEY, EXPIRES = 8, 9, 12, 13  -- places in a row's header

-- Returns queue, priority, eligible_at_ms and expires_at_ms (0: never) from a row's header, nil if it cannot be read.
function Move.header(row)
  local fields = unpacked(row)
  if type(fields[2]) == 'string' and type(fields[3]) == 'number' then
    local key = fields[KEY]
    return type(key) == 'string' and key ~= '' and fields[2] .. key or fields[2], fields[3],
      tonumber(fields[ELIGIBLE]) or 0, tonumber(fields[EXPIRES]) or 0
  end
  return nil
end

-- Returns whether an attempt of the job's content began, or may have, by its row of `tries`.
function Move.has_begun(row)
  return row and row:sub(5, 8) ~= '\0\0\0\0'  -- an empty first outcome: those behind it are of earlier contents
end

-- Returns a row with nil in place of its argument.
function Move.header_of(row)
  local good, behind = pcall(cmsgpack.unpack_limit, row, 1, 0)
  return good and behind > 0 and row:sub(1, behind) .. '\192' or row
end

-- Returns the pusher's own id of a job, "" if it has none.
function Move.job_name(row)
  local name = unpacked(row)[NAME]
  return type(name) == 'string' and name or ''
end

-- Returns the rows of the first of `ids`, as many as stay within bytes_max together with `before` bytes, and how many
-- bytes that is; one row at least, if `before` is nil; false for a row that is gone. Rows are read AT_ONCE, as a call
-- costs more than a row, so a few too many may be read.
local AT_ONCE = 8  -- rows, of a megabyte at most
function Move.rows_within(ids, bytes_max, before)
  local rows, bytes = {}, before or 0
  for first = 1, #ids, AT_ONCE do
    for at, row in ipairs(redis.call('HMGET', K.jobs, unpack(ids, first, math.min(first + AT_ONCE - 1, #ids)))) do
      bytes = bytes + (row and #row or 0)
      if bytes > bytes_max and (before or #rows > 0) then
        return rows, bytes
      end
      rows[first + at - 1] = row
    end
  end
  return rows, bytes
end

-- Drops the progress of jobs that lost their holder (leases.lua); a cancelled job shows it on.
function Move.forget_progress(ids)
  local fields = {}
  for _, id in ipairs(ids) do
    fields[#fields + 1] = 'p' .. id
  end
  local progress, gone = #fields > 0 and redis.call('HMGET', K.leases, unpack(fields)) or {}, {}
  for at, id in ipairs(ids) do
    if progress[at] and (redis.call('HGET', K.outcome, id) or ''):sub(1, 1) ~= Move.CANCELLED then
      gone[#gone + 1] = fields[at]
    end
  end
  if #gone > 0 then
    redis.call('HDEL', K.leases, unpack(gone))
  end
end

function Move.has_ended(id)
  return redis.call('ZSCORE', K.ended, id) or redis.call('ZSCORE', K.dead, id)
end

-- Adds a job to those that are ready. `date_ms`: 0 without a date; `generation`: of a content that is about to come.
function Move.add_ready(jobtype, priority, id, date_ms, generation)
  local score = Ageing.score_of(priority, id, date_ms, generation)
  local leads, known = Queues.may_lead(jobtype, score, id)
  Index.count_keyed(jobtype, redis.call('ZADD', ready_key(jobtype), score, id))
  Index.came(jobtype, score, leads, known, id)
end

-- Removes a job that nobody holds from where it waits. Returns its queue and the date that it waited for. A job whose
-- row cannot be read stays: the next claim finds it.
function Move.stop_waiting(id, row)
  local jobtype, priority = Move.header(row or '')
  local at_ms = redis.call('ZSCORE', K.later, id)
  if at_ms then
    redis.call('ZREM', K.later, id)
  elseif jobtype then
    Pages.drop_waiting(jobtype, priority, id)
  end
  return jobtype, at_ms
end

function Move.end_cancelled(id, now_ms, kept)
  redis.call('ZADD', K.ended, now_ms, id)
  redis.call('HSET', K.outcome, id, Move.CANCELLED .. (kept or ''))
  redis.call('ZREM', K.tombstones, 'c' .. id)
end
