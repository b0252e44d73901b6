-- Decides, after the store lost data, for each job that a daemon claims to hold, whether it has the job.
-- ARGV     1    now_ms
--          2    sysid
--          3    epoch
--          4    identity of the store
--          then for each job: id, fence, generation of its content or 0
-- Returns  ids that it does not have. A daemon that loses a job to a later claim is told to stop with its next renewal,
--          as by a cancel (renew_sysid); so is the caller, if a cancel was noted
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_BAD_VALUE; none after the first write
-- Cost     O(jobs · (members + log jobs)), and the bytes of those that are ready
register('reassert', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], tonumber(ARGV[3])
  local identity = ARGV[4]
  local FIRST, FIELDS = 5, 3

  Life.expect_life(identity)
  Members.own(sysid, epoch)
  local ids, fences, generations = {}, {}, {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(ids, ARGV[at])
    table.insert(fences, tonumber(ARGV[at + 1]))
    table.insert(generations, tonumber(ARGV[at + 2]))
  end

  local holds, lost, taken = About.look(ids), {}, {}
  local high, highest = tonumber(redis.call('HGET', K.life, 'high') or nil), 0
  local has_notes = is_here('tombstones')

  -- Returns whether that hold is of this life though its fence is lower: the clock was set back with the loss.
  local function is_newer(hold, fence) return high and high < hold.fence and hold.fence < fence end

  -- Returns whether a job that no daemon holds may still be held. Not if its row cannot be read: it cannot run.
  local function is_free(id, row)
    if row then
      return not Move.has_ended(id) and Move.header(row) ~= nil
    end
    local notes = redis.call('ZMSCORE', K.tombstones, 's' .. id, 'd' .. id)
    return not (notes[1] or notes[2])
  end

  -- Removes a job that the daemon has again from where it waited. Returns its queue.
  local function leave_places(id, row)
    local jobtype, at_ms = Move.stop_waiting(id, row)
    Counts.moved(jobtype, Counts.waits(id, at_ms), 'running', id)
    return jobtype
  end

  local function tell_to_stop(owner, id, fence)
    if owner ~= About.WORKERS then  -- a worker is told when it asks
      redis.call('ZADD', K.asked .. owner, digits(fence), id)
    end
  end

  for position, id in ipairs(ids) do
    local fence, hold, generation = fences[position], holds[id], generations[position]
    local row = not hold and redis.call('HGET', K.jobs, id)
    -- A success of an older content may come before the change that replaced it: it must not end the newer one.
    generation = generation > Change.began(id) and digits(generation) or nil
    local is_early = hold and hold.is_early or not hold and not row
    local claim = About.of(fence, sysid, generation, is_early, hold and hold.queue)
    if not hold and is_free(id, row) or hold and About.join(hold, claim) == claim and not is_newer(hold, fence) then
      if not hold then
        local queue = Parked.take_hold(row and leave_places(id, row) or '', id, fence)
        claim = About.of(fence, sysid, generation, is_early, queue)
      elseif hold.sysid ~= sysid then
        taken[#taken + 1] = id
        tell_to_stop(hold.sysid, id, hold.fence)
      end
      About.take(id, claim, hold)
      holds[id], highest = claim, math.max(highest, fence)
      local has_it = hold and hold.sysid == sysid and hold.fence == fence  -- then it was told when the cancel came
      if has_notes and not has_it and redis.call('ZSCORE', K.tombstones, 'c' .. id)
          and Change.cancelled_to(id) >= tonumber(generation or 0) then
        tell_to_stop(sysid, id, fence)
      end
    elseif not hold or hold.sysid ~= sysid or hold.fence ~= fence then
      lost[#lost + 1] = id
    end
  end
  Back.finish(taken, now_ms, now_us)
  Forgotten.tell(highest)
  Change.go_on_above(highest)  -- claims and epochs to come are to be later than these
  return lost
end)
