-- Hand-overs: a daemon gives a job to a worker, which then holds it by itself (leases.lua).

-- Returns whether a hand-over tells anything new. Of two claims the later one has the job. A known claim that holds
-- nothing now was given back since; of a forgotten one no later end is known. A claim that its daemon still seems to
-- have, in a store that went back, was given back as well if a later claim failed.
function Handover.may_entrust(outcome, hold, is_forgotten, is_earlier)
  if hold and hold.fence >= outcome.fence then
    return hold.fence == outcome.fence and not (is_earlier(outcome.fence) and Tries.last_of(outcome.id) > outcome.fence)
  elseif not is_forgotten(outcome.fence) or Move.has_ended(outcome.id) or Change.began(outcome.id) > outcome.meant
      or Tries.last_of(outcome.id) >= outcome.fence then
    return false
  end
  local notes = redis.call('ZMSCORE', K.tombstones, 's' .. outcome.id, 'd' .. outcome.id, 'o' .. outcome.id)
  return not (notes[1] or notes[2] or notes[3])
end

-- Gives the job to the workers, even if it has not come yet.
starts.entrusted = empty  -- text of a daemon's record → the hold that it became: equal for all of a claim
starts.beaten = empty  -- fence → what was written of that lease: equal for all of a claim

-- Returns the job's hold after a hand-over; the caller writes it (about.lua).
function Handover.entrust(outcome, before, now_us, is_again)
  local same = before and call.entrusted[before.text]
  if same and same.hold.fence == outcome.fence and same.generation == outcome.generation
      and same.silence == outcome.silence and same.worker == outcome.worker then
    About.take(outcome.id, same.hold, before)
    return same.hold
  end
  local id, fence, known = outcome.id, outcome.fence, call.beaten[outcome.fence]
  local is_early, queue = before and before.is_early, before and before.queue
  if not before then
    local row = redis.call('HGET', K.jobs, id)
    is_early = not row
    if row then
      Move.stop_waiting(id, row)
    end
    queue = Parked.take_hold(row and Move.header(row) or '', id, fence)
  end
  local hold = About.of(fence, About.WORKERS, outcome.generation, is_early, queue)
  local _, told = Leases.lease(fence)
  -- What retention repeats is no sign of life, or a silent worker would never be found.
  local is_repeated = told and before and before.sysid == About.WORKERS and before.fence == fence
  if not is_repeated and (not known or known.silence ~= outcome.silence or known.worker ~= outcome.worker) then
    Leases.beat(fence, outcome.silence, told or (not is_again and before and before.fence == fence) and '0' or '1',
      outcome.worker, now_us)
    call.beaten[fence] = {silence = outcome.silence, worker = outcome.worker}
  end
  About.take(id, hold, before)
  if before and before.sysid ~= About.WORKERS then
    call.entrusted[before.text] = {
      generation = outcome.generation, silence = outcome.silence, worker = outcome.worker, hold = hold,
    }
  end
  return hold
end
