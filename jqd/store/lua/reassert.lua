-- Decides after a loss of the store, for each job that a daemon says it holds: it has the job again, or no longer.
-- ARGV     now_ms, sysid, epoch, identity of the store as the caller knows it, then per job: id, fence, generation
--          of its content or 0
-- Returns  ids that are out of its hand
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(jobs · (members + log jobs)), and the bytes of those that are ready
register('reassert', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local identity = ARGV[4]
  local FIRST, FIELDS = 5, 3

  expect('jobs', 'types', 'heads', 'later', 'tries', 'ended', 'dead', 'tomb', 'early', 'life', 'generation')
  Holder.expect_held_keys()
  Leases.expect_leases()
  Life.expect_life(identity)
  Members.own(sysid, epoch)
  if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
    fail('JQD_ARGUMENT', 'jobs')
  end
  local ids, fences, generations = {}, {}, {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(ids, ARGV[at])
    table.insert(fences, number(ARGV[at + 1], 'fence'))
    table.insert(generations, number(ARGV[at + 2], 'generation'))
  end

  local in_hand = Holder.holders(ids)
  local lost, taken = {}, {}

  -- Whether a job that no daemon holds may still be held. A job whose row cannot be read may not: it cannot be run.
  local function is_free(id)
    if redis.call('HEXISTS', K.jobs, id) == 1 then
      return not Move.has_ended(id) and Move.header(redis.call('HGET', K.jobs, id)) ~= nil
    end
    local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id)
    return not (notes[1] or notes[2])
  end

  -- Removes a job that was taken into the hand from where it waited. A job that has not come yet is noted, and comes here.
  local function leave_places(id, fence)
    local row = redis.call('HGET', K.jobs, id)
    if not row then
      redis.call('HSET', K.early, id, sysid)
      return
    end
    local jobtype, priority = Move.header(row)
    local was_later = redis.call('ZSCORE', K.later, id)
    redis.call('ZREM', K.later, id)
    if not was_later then
      Pages.drop_waiting(jobtype, priority, id)
    end
    Parked.take_hold(jobtype, id, fence)
    Counts.moved(jobtype, Counts.waits(id, was_later and Counts.date_stands(was_later) or 'waiting'), 'running', id)
  end

  for position, id in ipairs(ids) do
    local fence, hold = fences[position], in_hand[id]
    -- A journal told of an earlier claim that was handed over, and not that the worker gave the job back: the later claim has it.
    local outdated = hold and hold.sysid == Holder.WORKERS and hold.fence < fence
    if hold and hold.sysid ~= sysid and not outdated or not hold and not is_free(id) then
      table.insert(lost, id)
    else
      redis.call('ZADD', held_key(sysid), digits(fence), id)
      if generations[position] > Change.began(id) then
        -- A success of an older content may come before the change that exchanged it: it must not end this one.
        redis.call('HSET', K.generation, 'h' .. id, digits(fence) .. ':' .. digits(generations[position]))
      end
      if not hold then
        leave_places(id, fence)
      elseif outdated then
        redis.call('ZREM', held_key(Holder.WORKERS), id)
        taken[#taken + 1] = id
        if redis.call('HEXISTS', K.early, id) == 1 then
          redis.call('HSET', K.early, id, sysid)
        end
      end
    end
  end
  Leases.forget_lent(taken)
  Counts.write_counts(now_ms)
  return lost
end)
