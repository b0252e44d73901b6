-- Lays jobs that wait or are in a hand, and of which something cannot be read, among the dead, where somebody finds
-- them; their rows stay as they are. One whose row is another than was seen, or that waits where it is not found, stays
-- where it is, and so does one that has not come yet, in its hand.
-- ARGV     now_ms; then per job: id, its row as it was seen, whole or without its argument, its jobtype or nothing
--          where nobody knows it, packed outcome
-- Returns  those that were buried
-- Errors   JQD_BAD_VALUE; none after the first write
-- Cost     O(ids · log dead); of those that are in no hand, and of which nobody knows the jobtype, all jobtypes are
--          asked
register('bury', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local FIRST, FIELDS, TYPES_MAX = 2, 4, 10000

  -- Where a job waits whose own row does not say so: queue, priority; nil where it is loose or limited, which a claim
  -- finds.
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
    local one = {id = id, row = row, outcome = ARGV[at + 3], hold = hold, jobtype = known, how = 'running'}
    one.queue = jobtype ~= '' and jobtype or known
    if not hold then
      local is_later = redis.call('ZSCORE', K.later, id)
      one.how = Counts.waits(id, is_later)
      if not is_later then
        one.queue, one.priority = waits_in(id)
      end
    end
    local is_same = not row or row == seen or Move.header_of(row) == seen
    if is_same and one.queue and not (hold and hold.is_early) then
      found[#found + 1] = one
    end
  end

  local buried, gone, lent = {}, {}, {}
  for _, one in ipairs(found) do
    local id = one.id
    if one.row and not Move.has_ended(id) then
      redis.call('ZADD', K.dead, now_ms, id)
      redis.call('HSET', K.outcome, id, one.outcome)
      redis.call('ZREM', K.later, id)
      if one.priority then
        Pages.drop_waiting(one.queue, one.priority, id)
      end
      Counts.moved(one.jobtype, one.how, 'failed', id, one.queue)
      Counts.died(one.jobtype)
      buried[#buried + 1] = id
    end
    if one.hold then
      About.leave(id, one.hold)
      gone[#gone + 1] = id
      lent[#lent + 1] = one.hold.sysid == About.WORKERS and one.hold.fence or nil
    end
  end
  Back.finish(gone, now_ms, now_us)
  for _, fence in ipairs(lent) do
    Leases.tidy_lease(fence, now_us)
  end
  return buried
end)
