-- Jobs that are new to the store: from a journal, or brought by the success that they follow. A job with a row in
-- `jobs` is left as it is.
function starts.has_notes() return is_here('tombstones') end

-- Returns whether anything was noted of a job before it came; whether it was here before, and is deleted.
local function is_met(id)
  if call.early > 0 and About.hold(id) then
    return true, false
  end
  local notes = call.has_notes and redis.call('ZMSCORE', K.tombstones, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id,
    'o' .. id) or {}
  return notes[1] or notes[2] or notes[3] or notes[4], notes[5]
end

local GROUP = 5  -- words before the jobs of a group

-- Reads groups of jobs from the argument `at` on. Returns them and the ids of all, in order. `fields`: words for a job,
-- id and row first.
function Arrive.read_groups(at, behind, fields)
  local groups, queues, ids, met = {}, {}, {}, 0
  while at < behind do
    local group = {
      jobtype = ARGV[at], priority = ARGV[at + 1], eligible_at_ms = tonumber(ARGV[at + 2]),
      expires_at_ms = tonumber(ARGV[at + 3]), count = tonumber(ARGV[at + 4]), first = at + GROUP,
    }
    groups[#groups + 1], queues[#queues + 1] = group, group.jobtype
    at = at + GROUP + group.count * fields
    for place = group.first, at - 1, fields do
      met = met + 1
      ids[met] = ARGV[place]
    end
  end
  Queues.learn_paged(queues)
  return groups, ids
end

-- Adds jobs. `left_out`: place in `ids` → true: not this one. Returns how many were new, and their ids and rows, flat.
function Arrive.arrive(groups, ids, fields, left_out, now_ms)
  -- Sets first, rows second, position last: if the function is cut short, the jobs are applied again, for they have no
  -- rows. One call asks for all rows and one writes them: each job may have a queue of its own, and a call for each
  -- would cost more than all the rest.
  local known = #ids > 0 and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  local rows, filled, noted, met = {}, 0, {}, 0
  for _, group in ipairs(groups) do
    local fresh, dates, is_due = {}, {}, group.eligible_at_ms <= now_ms
    local is_plain = call.early == 0 and not call.has_notes  -- the usual case
    local arrived = is_plain and fresh or {}
    group.fresh, group.arrived, group.how = fresh, arrived, is_due and 'waiting'
      or Counts.date_stands(group.eligible_at_ms)
    for position = 1, group.count do
      met = met + 1
      local id = ids[met]
      local is_new, was_noted = not known[met] and not left_out[met], false
      if is_new and not is_plain then
        local was_here
        was_noted, was_here = is_met(id)
        is_new = not was_here
        arrived[#arrived + 1] = is_new and id or nil
      end
      if is_new and was_noted then
        noted[#noted + 1] = {id = id, jobtype = group.jobtype, priority = group.priority,
          eligible_at_ms = group.eligible_at_ms, generation = 0, revision = 0}
      elseif is_new then
        fresh[#fresh + 1] = id
      end
      if is_new then
        rows[filled + 1], rows[filled + 2] = id, ARGV[group.first + (position - 1) * fields + 1]
        filled = filled + 2
      end
    end
    for at, id in ipairs(is_due and {} or fresh) do
      dates[2 * at - 1], dates[2 * at] = group.eligible_at_ms, id
      Counts.note_blocked(id, group.eligible_at_ms, now_ms)
    end
    if #dates > 0 then
      redis.call('ZADD', K.later, unpack(dates))
    elseif group.eligible_at_ms > 0 and call.period_ms > 0 then
      for _, id in ipairs(fresh) do
        Move.add_ready(group.jobtype, group.priority, id, group.eligible_at_ms, 0)
      end
    elseif #fresh > 0 then
      Pages.add_waiting(group.jobtype, group.priority, fresh)
    end
  end
  for _, job in ipairs(noted) do
    Stands.watch(job.id, true)  -- it has no row yet
    Exchange.place_unseen(job, now_ms, 0)
  end
  Index.write()
  if filled > 0 then
    redis.call('HSET', K.jobs, unpack(rows))
  end
  for _, group in ipairs(groups) do
    Expire.note_expiry(group.arrived, group.expires_at_ms)
    Counts.moved(Queues.type_of(group.jobtype), nil, group.how, group.fresh)
  end
  return filled / 2, rows
end

-- Two successes of one job may both bring its followers; they are the same jobs. A follower that was pushed, for an
-- outcome that brought nothing, has its name already.
Arrive.FIELDS = 4  -- of a follower: id, row, name, place of its outcome

-- Adds the followers of those outcomes that counted. `counted`: place of an outcome, from 0 → the outcome.
function Arrive.follow(groups, ids, counted, field, now_ms)
  local places, names, left_out, met = {}, {}, {}, {}
  for _, group in ipairs(groups) do
    for at = group.first, group.first + (group.count - 1) * Arrive.FIELDS, Arrive.FIELDS do
      names[#names + 1], places[#places + 1] = ARGV[at + 2], tonumber(ARGV[at + 3])
    end
  end
  local named = redis.call('HMGET', K.names, unpack(names))
  for at, id in ipairs(ids) do
    local outcome = counted[places[at]]
    left_out[at] = not outcome or named[at] or met[id]
      or outcome.copied and Gone.was_here(field, outcome.copied[1], outcome.copied[2])
    met[id] = met[id] or not left_out[at]
  end
  call.has_notes = redis.call('EXISTS', K.tombstones) == 1  -- their ends may have been noted by this very call
  local _, rows = Arrive.arrive(groups, ids, Arrive.FIELDS, left_out, now_ms)
  if #rows == 0 then
    return
  end
  local given, parents, children, at = {}, {}, {}, 1
  for place, id in ipairs(ids) do
    if not left_out[place] and rows[at] == id then
      given[at], given[at + 1], at = names[place], '0 ' .. id .. ' 0 ', at + 2
      parents[#parents + 1], children[#children + 1] = counted[places[place]].id, id
    end
  end
  redis.call('HSET', K.names, unpack(given))
  Links.note_made(parents, children)
end
