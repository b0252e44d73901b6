-- Jobs that leave hands, and those that come into the hand of all workers: collected, and written together.
-- Gives leave(id, sysid); stop_waiting(id): takes a job that nobody holds out of where it waits; may_entrust(one, hold, is_forgotten, is_earlier),
-- entrust(one, hold, now_us, is_again) → the hold, of an outcome (outcomes.lua) that says that a worker has the job in its own hand; lent: what
-- is not written yet, if any; write_hands().
starts.lent = empty

starts.left_hands, starts.lent_generations = empty, empty  -- sysid → ids; id → generation, or false

function Hands.leave(id, sysid)
  local ids = call.left_hands[sysid] or {}
  ids[#ids + 1], call.left_hands[sysid] = id, ids
end

function Hands.stop_waiting(id)
  local jobtype, priority = Move.header(redis.call('HGET', K.jobs, id) or '')
  if redis.call('ZREM', K.later, id) == 0 and jobtype then
    Pages.drop_waiting(jobtype, priority, id)
  end
end

-- Whether a hand-over still means anything that the store does not know: of two claims the later one has the job. A claim that
-- the store knew of, and that holds nothing now, was given back since; of one that it has forgotten nobody may know a later end. One that
-- its daemon is taken to have still, in a store that went back, was given back as well when a later claim failed.
function Hands.may_entrust(one, hold, is_forgotten, is_earlier)
  if hold and hold.fence >= one.fence then
    return hold.fence == one.fence and not (is_earlier(one.fence) and Change.last_try(one.id) > one.fence)
  elseif not is_forgotten(one.fence) or Move.has_ended(one.id) or Change.began(one.id) > one.meant or Change.last_try(one.id) >= one.fence then
    return false
  end
  local notes = redis.call('ZMSCORE', K.tomb, 's' .. one.id, 'd' .. one.id, 'o' .. one.id)
  return not (notes[1] or notes[2] or notes[3])
end

-- The attempt goes on in the hand of all workers. A job that has not come yet comes into that hand.
starts.beaten = empty  -- fence → what was written of that lease; all of one claim say the same
function Hands.entrust(one, hold, now_us, is_again)
  local id, fence, known = one.id, one.fence, call.beaten[one.fence]
  if not hold or Early.early_holder(id) then
    if redis.call('HEXISTS', K.jobs, id) == 0 then
      redis.call('HSET', K.early, id, Holder.WORKERS)
      call.has_early = true
    elseif not hold then
      Hands.stop_waiting(id)
      Parked.take_hold(Move.header(redis.call('HGET', K.jobs, id)) or '', id, fence)
    end
  end
  call.lent[#call.lent + 1], call.lent[#call.lent + 2] = digits(fence), id
  call.lent_generations[id] = one.generation or false
  if hold and hold.sysid ~= Holder.WORKERS then
    Hands.leave(id, hold.sysid)
  end
  local _, told = Leases.lease(fence)
  if told and hold and hold.sysid == Holder.WORKERS and hold.fence == fence then
    return hold  -- retention tells it again and again: no sign of life, or a worker that fell silent would never be found
  elseif not known or known.silence ~= one.silence or known.worker ~= one.worker then
    Leases.beat(fence, one.silence, told or (not is_again and hold and hold.fence == fence) and '0' or '1', one.worker, now_us)
    known = {silence = one.silence, worker = one.worker, hold = {sysid = Holder.WORKERS, fence = fence}}
    call.beaten[fence] = known
  end
  return known.hold
end

local function write_lent()
  local first, later = {}, {}
  for id, generation in pairs(call.lent_generations) do
    if generation then
      later[#later + 1], later[#later + 2] = 'g' .. id, generation
    else
      first[#first + 1] = 'g' .. id
    end
  end
  for _, add in ipairs({{'ZADD', held_key(Holder.WORKERS), call.lent}, {'HDEL', K.leases, first}, {'HSET', K.leases, later}}) do
    if #add[3] > 0 then
      redis.call(add[1], add[2], unpack(add[3]))
    end
  end
  call.lent, call.lent_generations = {}, {}
end

function Hands.write_hands()
  if #call.lent > 0 then
    write_lent()
  end
  for sysid, gone in pairs(call.left_hands) do
    redis.call('ZREM', held_key(sysid), unpack(gone))
  end
  call.left_hands = {}
end
