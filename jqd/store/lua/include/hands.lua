-- Jobs that leave hands, and those that come into the hand of all workers: collected, and written together. Needs keys, now, order, pages, holder, move, early, tries, leases, change, limits.
-- Gives leave(id, sysid); stop_waiting(id): takes a job that nobody holds out of where it waits; may_entrust(one, hold, is_forgotten, is_earlier),
-- entrust(one, hold, now_us, is_again) → the hold, of an outcome (outcomes.lua) that says that a worker has the job in its own hand; lent: what
-- is not written yet, if any; write_hands().
local lent, leave, stop_waiting, may_entrust, entrust, write_hands = {}
do
  local left, lent_generations = {}, {}  -- sysid → ids; id → generation, or false

  function leave(id, sysid)
    local ids = left[sysid] or {}
    ids[#ids + 1], left[sysid] = id, ids
  end

  function stop_waiting(id)
    local jobtype, priority = header(redis.call('HGET', K.jobs, id) or '')
    if redis.call('ZREM', K.later, id) == 0 and jobtype then
      drop_waiting(jobtype, priority, id)
    end
  end

  -- Whether a hand-over still means anything that the store does not know: of two claims the later one has the job. A claim that
  -- the store knew of, and that holds nothing now, was given back since; of one that it has forgotten nobody may know a later end. One that
  -- its daemon is taken to have still, in a store that went back, was given back as well when a later claim failed.
  function may_entrust(one, hold, is_forgotten, is_earlier)
    if hold and hold.fence >= one.fence then
      return hold.fence == one.fence and not (is_earlier(one.fence) and last_try(one.id) > one.fence)
    elseif not is_forgotten(one.fence) or has_ended(one.id) or began(one.id) > one.meant or last_try(one.id) >= one.fence then
      return false
    end
    local notes = redis.call('ZMSCORE', K.tomb, 's' .. one.id, 'd' .. one.id, 'o' .. one.id)
    return not (notes[1] or notes[2] or notes[3])
  end

  -- The attempt goes on in the hand of all workers. A job that has not come yet comes into that hand.
  local beaten = {}  -- fence → what was written of that lease; all of one claim say the same
  function entrust(one, hold, now_us, is_again)
    local id, fence, known = one.id, one.fence, beaten[one.fence]
    if not hold or early_holder(id) then
      if redis.call('HEXISTS', K.jobs, id) == 0 then
        redis.call('HSET', K.early, id, WORKERS)
        has_early = true
      elseif not hold then
        stop_waiting(id)
        limits.take_hold(header(redis.call('HGET', K.jobs, id)) or '', id, fence)
      end
    end
    lent[#lent + 1], lent[#lent + 2] = digits(fence), id
    lent_generations[id] = one.generation or false
    if hold and hold.sysid ~= WORKERS then
      leave(id, hold.sysid)
    end
    local _, told = lease(fence)
    if told and hold and hold.sysid == WORKERS and hold.fence == fence then
      return hold  -- retention tells it again and again: no sign of life, or a worker that fell silent would never be found
    elseif not known or known.silence ~= one.silence or known.worker ~= one.worker then
      beat(fence, one.silence, told or (not is_again and hold and hold.fence == fence) and '0' or '1', one.worker, now_us)
      known = {silence = one.silence, worker = one.worker, hold = {sysid = WORKERS, fence = fence}}
      beaten[fence] = known
    end
    return known.hold
  end

  local function write_lent()
    local first, later = {}, {}
    for id, generation in pairs(lent_generations) do
      if generation then
        later[#later + 1], later[#later + 2] = 'g' .. id, generation
      else
        first[#first + 1] = 'g' .. id
      end
    end
    for _, add in ipairs({{'ZADD', held_key(WORKERS), lent}, {'HDEL', K.leases, first}, {'HSET', K.leases, later}}) do
      if #add[3] > 0 then
        redis.call(add[1], add[2], unpack(add[3]))
      end
    end
    lent, lent_generations = {}, {}
  end

  function write_hands()
    if #lent > 0 then
      write_lent()
    end
    for sysid, gone in pairs(left) do
      redis.call('ZREM', held_key(sysid), unpack(gone))
    end
    left = {}
  end
end
