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

  expect('members', 'jobs', 'types', 'heads', 'later', 'tries', 'ended', 'dead', 'tomb', 'about', 'life', 'generation')
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

  local in_hand, lost, taken = About.holds(ids), {}, {}

  -- Whether a job that no daemon holds may still be held. A job whose row cannot be read may not: it cannot be run.
  local function is_free(id, row)
    if row then
      return not Move.has_ended(id) and Move.header(row) ~= nil
    end
    local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id)
    return not (notes[1] or notes[2])
  end

  -- Removes a job that was taken into the hand from where it waited. Returns its queue, where that is limited.
  local function leave_places(id, row, fence)
    local jobtype, priority = Move.header(row)
    local was_later = redis.call('ZSCORE', K.later, id)
    redis.call('ZREM', K.later, id)
    if not was_later then
      Pages.drop_waiting(jobtype, priority, id)
    end
    Counts.moved(jobtype, Counts.waits(id, was_later and Counts.date_stands(was_later) or 'waiting'), 'running', id)
    return Parked.take_hold(jobtype, id, fence)
  end

  for position, id in ipairs(ids) do
    local fence, hold, generation = fences[position], in_hand[id], generations[position]
    local row = not hold and redis.call('HGET', K.jobs, id)
    -- A success of an older content may come before the change that exchanged it: it must not end this one.
    generation = generation > Change.began(id) and digits(generation) or nil
    local is_early = hold and hold.is_early or not hold and not row
    local told = About.of(fence, sysid, generation, is_early, hold and hold.queue)
    if not hold and is_free(id, row) or hold and About.join(hold, told) == told then
      if row then
        told = About.of(fence, sysid, generation, false, leave_places(id, row, fence))
      elseif hold and hold.sysid ~= sysid then
        taken[#taken + 1] = id
      end
      About.take(id, told, hold)
      in_hand[id] = told
    elseif not hold or hold.sysid ~= sysid or hold.fence ~= fence then
      lost[#lost + 1] = id
    end
  end
  About.write()
  Move.forget_progress(taken)
  Counts.write_counts(now_ms)
  return lost
end)
