-- Moving jobs between the sets. Each function only adds, or says that it removes: add first, then remove.
-- A note in `tomb` is one letter and the id: c cancel asked, s outcome that ends the job, d outcome that kills it,
-- r outcome that retries it.
Move.CANCELLED = 'C'  -- in `outcome`, where a cancel ended the job; the outcome of its last attempt may follow
Move.CRASHED = 'X'  -- in `outcome`, where it was alone in flight at that many deaths
Move.EXPIRED = 'E'  -- in `outcome`, where no attempt had begun at that instant (ms)
Move.MEANT = 'G'  -- in `outcome`, before an outcome of a content that is not the first: "G<generation>:"
local ELIGIBLE, NAME, KEY, EXPIRES = 8, 9, 12, 13  -- places in a row's header

-- The queue of its jobs, priority, eligible_at_ms and expires_at_ms (0: never) from a row's header, nil when it cannot
-- be read. Copies nothing but the header.
function Move.header(row)
  local fields = unpacked(row)
  if type(fields[2]) == 'string' and type(fields[3]) == 'number' then
    local key = fields[KEY]
    return type(key) == 'string' and key ~= '' and fields[2] .. key or fields[2], fields[3],
      tonumber(fields[ELIGIBLE]) or 0, tonumber(fields[EXPIRES]) or 0
  end
  return nil
end

-- Whether an attempt of a job's content began, or may have, from its row of `tries`.
function Move.has_begun(row)
  return row and row:sub(5, 8) ~= '\0\0\0\0'  -- a first outcome of no bytes: those behind it are of earlier contents
end

-- A row without its argument: nil stands in its place.
function Move.header_of(row)
  local good, behind = pcall(cmsgpack.unpack_limit, row, 1, 0)
  return good and behind > 0 and row:sub(1, behind) .. '\192' or row
end

-- The pusher's own id of a job, "" when it has none.
function Move.job_name(row)
  local name = unpacked(row)[NAME]
  return type(name) == 'string' and name or ''
end

-- The first of `ids` whose rows stay below bytes_max together with `before` bytes, which others have; one at least
-- where that is nil. Returns their rows in the same order, false for a row that is gone, and how many bytes all have.
-- Cost: O(ids) and the bytes read. A few rows are read by one call, for a call costs more than a row: so at most some
-- more than fit.
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

-- How far their workers were with jobs that left a hand (leases.lua). Of one that was cancelled that is told until it
-- is deleted or begins anew.
function Move.forget_progress(ids)
  local fields = {}
  for _, id in ipairs(ids) do
    fields[#fields + 1] = 'p' .. id
  end
  local told, gone = #fields > 0 and redis.call('HMGET', K.leases, unpack(fields)) or {}, {}
  for at, id in ipairs(ids) do
    if told[at] and (redis.call('HGET', K.outcome, id) or ''):sub(1, 1) ~= Move.CANCELLED then
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

-- `date_ms`: 0 for a job that has none. `generation`: of a content that is about to come.
function Move.add_ready(jobtype, priority, id, date_ms, generation)
  local score = Ageing.score_of(priority, id, date_ms, generation)
  local leads, known = Queues.may_lead(jobtype, score, id)
  Heads.count_keyed(jobtype, redis.call('ZADD', ready_key(jobtype), score, id))
  Heads.came(jobtype, score, leads, known, id)
end

-- Takes a job that nobody holds out of where it waits. Returns its queue, and the date that it waited for. One whose
-- row cannot be read stays where it waits, without a queue: the next claim finds out and takes it away.
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
  redis.call('ZREM', K.tomb, 'c' .. id)
end
