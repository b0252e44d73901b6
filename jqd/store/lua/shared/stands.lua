-- Finds a job's state by looking where the job is. The counts are made of such states.
local FATE, JOBTYPE, ATTEMPT, SUCCEEDED = 3, 4, 6, 1

-- Returns how a job ended by its row of `outcome`, nil if that cannot be read; and the jobtype in it, or nil.
function Stands.ended_as(kept)
  local mark = Outcomes.parts(kept or Move.CRASHED)
  if mark == Move.CRASHED or mark == Move.EXPIRED then
    return 'failed'
  end
  local values = Outcomes.values(kept, JOBTYPE)
  local good = type(values[JOBTYPE]) == 'string'
  local how = good and (values[FATE] == SUCCEEDED and 'succeeded' or 'failed') or nil
  return mark == Move.CANCELLED and 'cancelled' or how, good and values[JOBTYPE] or nil
end

-- Returns the number of the attempt in a kept outcome, 0 if there is none or it cannot be read.
function Stands.attempt_in(kept)
  return tonumber(Outcomes.values(kept or '', ATTEMPT)[ATTEMPT]) or 0
end

local PLACES = {'dead', 'ended', 'later'}

-- Returns where a job is: dead, ended, later or held; its score there; its hold. Nothing: it waits to be claimed.
function Stands.place(id)
  for _, name in ipairs(PLACES) do
    local score = redis.call('ZSCORE', K[name], id)
    if score then
      return name, score
    end
  end
  local hold = About.hold(id)
  return hold and 'held', hold and digits(hold.fence), hold
end

-- Returns jobtype and state of a job; nil: it is not here. `is_here`: it is, and the jobtype is not wanted, so its row
-- is not read.
function Stands.how_stands(id, is_here)
  local row = is_here or redis.call('HGET', K.jobs, id)
  if not row then
    return nil
  end
  local jobtype, place, score = not is_here and Move.header(row) or '', Stands.place(id)
  if place == 'dead' or place == 'ended' then
    local how, type_of_outcome = Stands.ended_as(redis.call('HGET', K.outcome, id))
    return jobtype ~= '' and jobtype or type_of_outcome or '', place == 'dead' and 'failed' or how or 'succeeded'
  end
  return jobtype, place == 'held' and 'running' or Counts.waits(id, score)
end

starts.watched = empty

-- Counts whatever happens to a job in this call: its state now is compared with that at the end. `is_new`: no row yet.
function Stands.watch(id, is_new)
  if not call.watched[id] then
    call.watched[id] = is_new and {} or {Stands.how_stands(id)}
  end
end

-- Counts the jobs that were watched; when counts are written.
function Stands.count_watched()
  for id, before in pairs(call.watched) do
    local jobtype, how = Stands.how_stands(id)
    if jobtype or before[1] then
      Counts.moved(jobtype or before[1], before[2], how, id, before[1])
    end
  end
  call.watched = {}
end
