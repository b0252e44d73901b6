-- Jobs that are new to the store: from a journal's frames of jobs, or brought by the success that they follow.
function starts.has_notes() return is_here('tomb') end

-- Whether something was told of a job before it came; whether it was here already, with a later content, and is
-- deleted.
local function is_met(id)
  if call.early > 0 and About.hold(id) then
    return true, false
  end
  local notes = call.has_notes and redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id,
    'o' .. id) or {}
  return notes[1] or notes[2] or notes[3] or notes[4], notes[5]
end

local GROUP = 5  -- words before the jobs of a group

-- Groups of jobs from the argument `at` on, as apply_jobs has them, and the ids of all, in order. fields: of a job, id
-- and row first.
function Arrive.read_groups(at, behind, fields)
  local groups, queues, ids, met = {}, {}, {}, 0
  while at < behind do
    local group = {
      jobtype = ARGV[at], priority = ARGV[at + 1], eligible_at_ms = number(ARGV[at + 2], 'eligible_at_ms'),
      expires_at_ms = number(ARGV[at + 3], 'expires_at_ms'), count = number(ARGV[at + 4], 'count'), first = at + GROUP,
    }
    number(group.priority, 'priority')
    if group.count < 1 then
      fail('JQD_ARGUMENT', 'count')
    end
    groups[#groups + 1], queues[#queues + 1] = group, group.jobtype
    at = at + GROUP + group.count * fields
    for place = group.first, math.min(at, behind) - 1, fields do
      met = met + 1
      ids[met] = ARGV[place]
    end
  end
  if at ~= behind then
    fail('JQD_ARGUMENT', 'jobs')
  end
  Queues.learn_paged(queues)
  return groups, ids
end

-- Jobs come. left_out: place in `ids` → true: it is not to come. Returns how many were new, their ids and rows, flat.
function Arrive.arrive(groups, ids, fields, left_out, now_ms)
  -- Sets first, rows second, position last: if the function were ever cut short, applying the jobs again would find the
  -- rows missing. One call asks for all rows, and one writes them, whatever groups the jobs are of: each may have a
  -- queue of its own, and a call for each costs more than all the rest. Only jobs that were applied before have a row.
  local known = #ids > 0 and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  local rows, filled, told, met = {}, 0, {}, 0
  for _, group in ipairs(groups) do
    local fresh, dates, is_due = {}, {}, group.eligible_at_ms <= now_ms
    local is_plain = call.early == 0 and not call.has_notes  -- as nearly always
    local arrived = is_plain and fresh or {}
    group.fresh, group.arrived, group.how = fresh, arrived, is_due and 'waiting'
      or Counts.date_stands(group.eligible_at_ms)
    for position = 1, group.count do
      met = met + 1
      local id = ids[met]
      local is_new, was_told = not known[met] and not left_out[met], false
      if is_new and not is_plain then
        local was_here
        was_told, was_here = is_met(id)
        is_new = not was_here
        arrived[#arrived + 1] = is_new and id or nil
      end
      if is_new and was_told then
        told[#told + 1] = {id = id, jobtype = group.jobtype, priority = group.priority,
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
  for _, one in ipairs(told) do
    Stands.watch(one.id, true)  -- it has no row yet
    Exchange.place_unseen(one, now_ms, 0)
  end
  Heads.write()
  if filled > 0 then
    redis.call('HSET', K.jobs, unpack(rows))
  end
  for _, group in ipairs(groups) do
    Expire.note_expiry(group.arrived, group.expires_at_ms)
    Counts.moved(Queues.type_of(group.jobtype), nil, group.how, group.fresh)
  end
  return filled / 2, rows
end

-- Of two successes of one job each may bring what follows it: it is one job. One that was pushed, for an outcome that
-- brought nothing, has its name.
Arrive.FIELDS = 4  -- of a follower: id, row, name, place of its outcome

-- Followers come, of those outcomes of which `counts` says, at their place from 0, that they counted.
function Arrive.follow(groups, ids, counts, field, now_ms)
  local places, names, left_out, met = {}, {}, {}, {}
  for _, group in ipairs(groups) do
    for at = group.first, group.first + (group.count - 1) * Arrive.FIELDS, Arrive.FIELDS do
      names[#names + 1], places[#places + 1] = ARGV[at + 2], tonumber(ARGV[at + 3])
    end
  end
  local named = redis.call('HMGET', K.names, unpack(names))
  for at, id in ipairs(ids) do
    local one = counts[places[at]]
    left_out[at] = not one or named[at] or met[id] or one.copied and Gone.was_here(field, one.copied[1], one.copied[2])
    met[id] = met[id] or not left_out[at]
  end
  call.has_notes = redis.call('EXISTS', K.tomb) == 1  -- also when their own ends are noted by this very call
  local _, rows = Arrive.arrive(groups, ids, Arrive.FIELDS, left_out, now_ms)
  if #rows == 0 then
    return
  end
  local given, parents, children, at = {}, {}, {}, 1
  for place, id in ipairs(ids) do
    if not left_out[place] and rows[at] == id then
      given[at], given[at + 1], at = names[place], '0 ' .. id .. ' 0 ', at + 2
      parents[#parents + 1], children[#children + 1] = counts[places[place]].id, id
    end
  end
  redis.call('HSET', K.names, unpack(given))
  Links.note_made(parents, children)
end
