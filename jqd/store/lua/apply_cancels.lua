-- Cancels jobs from a journal and moves its position, in one step.
-- ARGV     now_ms, position field, from, to, then "id" or "id@generation": the latest generation that it cancels
-- Returns  per id the jobtype, "" if the job is not here; nil if all were applied before
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(ids · members · log jobs), and the bytes of their rows
register('apply_cancels', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local FIRST = 5

  if not Position.at_position(field, from, to) then
    return false
  end

  local ids = {}
  for at = FIRST, #ARGV do
    ids[at - FIRST + 1] = ARGV[at]:match('^[^@]*')
  end
  local holds = About.look(ids)

  -- Without the constraints that `header` adds.
  local function jobtype_of(row)
    local jobtype = unpacked(row)[2]
    return type(jobtype) == 'string' and jobtype or ''
  end

  local function cancel(id, to, row)
    if Change.began(id) > to then
      return
    end
    Change.note_cancel(id, to)
    local hold = holds[id]
    if not row or hold then
      redis.call('ZADD', K.tombstones, now_ms, 'c' .. id)
      -- A worker is told when it asks. A job that is held may be of a later content, whose change is still to come.
      if hold and hold.sysid ~= About.WORKERS and tonumber(hold.generation or 0) <= to then
        redis.call('ZADD', K.asked .. hold.sysid, digits(hold.fence), id)
      end
      return
    elseif Move.has_ended(id) then
      Stands.watch(id)
      Change.prefer_cancel(id, Change.began(id))
      return
    end
    Move.end_cancelled(id, now_ms)
    local jobtype, at_ms = Move.stop_waiting(id, row)
    Counts.moved(jobtype or '', Counts.waits(id, at_ms), 'cancelled', id)
  end

  local jobtypes = {}
  for at = FIRST, #ARGV do
    local id, to = ARGV[at]:match('^(.-)@(%d+)$')
    id, to = id or ARGV[at], tonumber(to) or 0
    local row = redis.call('HGET', K.jobs, id)
    jobtypes[#jobtypes + 1] = row and jobtype_of(row) or ''
    cancel(id, to, row)
  end
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return jobtypes
end)
