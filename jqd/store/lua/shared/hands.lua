-- Jobs that come into the hand of all workers.
-- Of an outcome (outcomes.lua) that says that a worker has the job in its own hand: whether that still means anything
-- that the store does not know. Of two claims the later one has the job. A claim that the store knew of, and that holds
-- nothing now, was given back since; of one that it has forgotten nobody may know a later end. One that its daemon is
-- taken to have still, in a store that went back, was given back as well when a later claim failed.
function Hands.may_entrust(one, hold, is_forgotten, is_earlier)
  if hold and hold.fence >= one.fence then
    return hold.fence == one.fence and not (is_earlier(one.fence) and Tries.last_of(one.id) > one.fence)
  elseif not is_forgotten(one.fence) or Move.has_ended(one.id) or Change.began(one.id) > one.meant
      or Tries.last_of(one.id) >= one.fence then
    return false
  end
  local notes = redis.call('ZMSCORE', K.tomb, 's' .. one.id, 'd' .. one.id, 'o' .. one.id)
  return not (notes[1] or notes[2] or notes[3])
end

-- The attempt goes on in the hand of all workers. A job that has not come yet comes into that hand.
starts.entrusted = empty  -- text of a record in a daemon's hand → what became of it: of all of a claim the same
starts.beaten = empty  -- fence → what was written of that lease; all of one claim say the same

-- The hold of such an outcome; the caller writes it (about.lua).
function Hands.entrust(one, before, now_us, is_again)
  local same = before and call.entrusted[before.text]
  if same and same.hold.fence == one.fence and same.generation == one.generation and same.silence == one.silence
      and same.worker == one.worker then
    About.take(one.id, same.hold, before)
    return same.hold
  end
  local id, fence, known = one.id, one.fence, call.beaten[one.fence]
  local is_early, queue = before and before.is_early, before and before.queue
  if not before then
    local row = redis.call('HGET', K.jobs, id)
    is_early = not row
    if row then
      Move.stop_waiting(id, row)
    end
    queue = Parked.take_hold(row and Move.header(row) or '', id, fence)
  end
  local hold = About.of(fence, About.WORKERS, one.generation, is_early, queue)
  local _, told = Leases.lease(fence)
  -- What retention tells again and again is no sign of life, or a worker that fell silent would never be found.
  local is_repeated = told and before and before.sysid == About.WORKERS and before.fence == fence
  if not is_repeated and (not known or known.silence ~= one.silence or known.worker ~= one.worker) then
    Leases.beat(fence, one.silence, told or (not is_again and before and before.fence == fence) and '0' or '1',
      one.worker, now_us)
    call.beaten[fence] = {silence = one.silence, worker = one.worker}
  end
  About.take(id, hold, before)
  if before and before.sysid ~= About.WORKERS then
    call.entrusted[before.text] = {generation = one.generation, silence = one.silence, worker = one.worker, hold = hold}
  end
  return hold
end
