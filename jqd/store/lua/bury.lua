-- Puts jobs that wait or are held, and of which something cannot be read, among the dead, where somebody finds them.
-- Their rows stay. A job stays where it is if its row is not the one that was seen, if it is not found where it waits,
-- or if it has not come yet.
-- ARGV     now_ms; then per job: id, its row as it was seen, whole or without its argument, its jobtype or nothing,
--          packed outcome
-- Returns  those that were buried
-- Errors   JQD_BAD_VALUE; none after the first write
-- Cost     O(ids · log dead); for jobs that nobody holds and whose jobtype is not known, O(jobtypes)
register('bury', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local FIRST, FIELDS, TYPES_MAX = 2, 4, 10000

  -- Returns queue and priority under which a job waits, if its own row does not say so; nil if it is loose or limited:
  -- a claim finds it.
  local function waits_in(id)
    for _, queue in ipairs(redis.call('ZRANGE', K.types, 0, TYPES_MAX - 1)) do
      local score, from = redis.call('ZSCORE', ready_key(queue), id), '-inf'
      while not score and Queues.paged_of(queue) > 0 do
        local priority = redis.call('ZRANGE', Queues.backlog_key(queue), from, '+inf', 'BYSCORE', 'LIMIT', 0, 1,
          'WITHSCORES')[2]
        if not priority then
          break
        end
        score, from = Pages.place_of(queue, tonumber(priority), id), '(' .. priority
      end
      if score then
        return queue, tonumber(score)
      end
    end
    return nil
  end

  local found = {}
  for at = FIRST, #ARGV, FIELDS do
    local id, seen, jobtype = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local hold = About.hold(id)
    local row = redis.call('HGET', K.jobs, id)
    local known = Move.header(row or '') or jobtype
    local job = {id = id, row = row, outcome = ARGV[at + 3], hold = hold, jobtype = known, how = 'running'}
    job.queue = jobtype ~= '' and jobtype or known
    if not hold then
      local is_later = redis.call('ZSCORE', K.later, id)
      job.how = Counts.waits(id, is_later)
      if not is_later then
        job.queue, job.priority = waits_in(id)
      end
    end
    local is_same = not row or row == seen or Move.header_of(row) == seen
    if is_same and job.queue and not (hold and hold.is_early) then
      found[#found + 1] = job
    end
  end

  local buried, gone, lent = {}, {}, {}
  for _, job in ipairs(found) do
    local id = job.id
    if job.row and not Move.has_ended(id) then
      redis.call('ZADD', K.dead, now_ms, id)
      redis.call('HSET', K.outcome, id, job.outcome)
      redis.call('ZREM', K.later, id)
      if job.priority then
        Pages.drop_waiting(job.queue, job.priority, id)
      end
      Counts.moved(job.jobtype, job.how, 'failed', id, job.queue)
      Counts.died(job.jobtype)
      buried[#buried + 1] = id
    end
    if job.hold then
      About.leave(id, job.hold)
      gone[#gone + 1] = id
      lent[#lent + 1] = job.hold.sysid == About.WORKERS and job.hold.fence or nil
    end
  end
  Back.finish(gone, now_ms, now_us)
  for _, fence in ipairs(lent) do
    Leases.tidy_lease(fence, now_us)
  end
  return buried
end)
