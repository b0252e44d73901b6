-- Adds jobs from a journal and moves the position of their lane, in one step.
-- ARGV     now_ms, position field, from, to, last field, last id (nothing: it stays), number of copies; per copy: id, position where it
--          stood first, position it was copied from; then per group of jobs that have them in common:
--          jobtype, priority, eligible_at_ms or 0, expires_at_ms or 0, count and count times (id, row), ids ascending
-- Returns  number of jobs that were new
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(jobs · log waiting), and the bytes
register('apply_jobs', {}, function()
  local now_ms = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local last_field, last_id = ARGV[5], ARGV[6]
  local COPIES, FIRST, COPY, GROUP, FIELDS = 7, 8, 3, 5, 2

  local copy_count = number(ARGV[COPIES], 'copies')
  if not Position.at_position(field, from, to) then
    return 0
  end
  local groups, queues, at, arguments = {}, {}, FIRST, #ARGV
  local known_copies = {}
  for _ = 1, copy_count do
    known_copies[ARGV[at]] = Gone.was_here(field, ARGV[at + 1], ARGV[at + 2])
    at = at + COPY
  end
  while at <= arguments do
    local group = {
      jobtype = ARGV[at], priority = ARGV[at + 1], eligible_at_ms = number(ARGV[at + 2], 'eligible_at_ms'),
      expires_at_ms = number(ARGV[at + 3], 'expires_at_ms'), count = number(ARGV[at + 4], 'count'), first = at + GROUP,
    }
    number(group.priority, 'priority')
    if group.count < 1 then
      fail('JQD_ARGUMENT', 'count')
    end
    groups[#groups + 1], queues[#queues + 1] = group, group.jobtype
    at = at + GROUP + group.count * FIELDS
  end
  if at ~= arguments + 1 then
    fail('JQD_ARGUMENT', 'jobs')
  end
  Queues.learn_paged(queues)

  local has_notes = redis.call('ZCARD', K.tomb) > 0
  -- The notes of a job that were left before it came: true when one of them ended it, else the date of a retry or nil; whether
  -- it was here already, with a later content, and is deleted.
  local function meet_notes(id)
    local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id, 'o' .. id)
    local ended, killed, cancelled, retried = notes[1], notes[2], notes[3], notes[4]
    if notes[5] then
      return true, nil, true
    elseif ended then
      redis.call('ZADD', K.ended, Change.noted_end(id, now_ms), id)
    elseif killed then
      redis.call('ZADD', K.dead, Change.noted_end(id, now_ms), id)
    elseif cancelled then
      Move.end_cancelled(id, now_ms)
    end
    if (ended or killed) and cancelled then
      Change.prefer_cancel(id, 0, now_ms)
    end
    if ended or killed or cancelled or retried then
      redis.call('ZREM', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id)
    end
    return (ended or killed or cancelled) and true, tonumber(retried or nil)
  end

  -- Whether a daemon said before the job came that it holds it, and still does. The date of an earlier retry does not count
  -- then; a cancel that was asked for meanwhile stays noted.
  local function meet_hold(group, id)
    local hold = call.early > 0 and About.hold(id)
    if not hold then
      return false
    end
    About.come(id, hold, Parked.take_hold(group.jobtype, id, hold.fence))
    redis.call('ZREM', K.tomb, 'r' .. id, 'o' .. id)
    return true
  end

  -- Where a job that is new goes: an id for `ready`, arguments of ZADD for `later`; `new`: those of which no note was left. Whether
  -- it is new.
  local function place(group, id, ready, later, new)
    local over, retry_at_ms, is_old = meet_hold(group, id), nil, false
    if has_notes and not over then
      over, retry_at_ms, is_old = meet_notes(id)
    end
    if over or retry_at_ms then
      Stands.watch(id, true)  -- it has no row yet
    end
    local eligible_at_ms = math.max(group.eligible_at_ms, retry_at_ms or 0)
    if over then
      if not is_old then
        Counts.note_blocked(id, group.eligible_at_ms, now_ms)  -- its parents are to know of it
      end
      return not is_old  -- it lies among the ended already, or in a hand
    end
    local is_due = eligible_at_ms <= now_ms
    if is_due then
      ready[#ready + 1] = id
    else
      later[#later + 1], later[#later + 2] = eligible_at_ms, id
      Counts.note_blocked(id, eligible_at_ms, now_ms)
    end
    if not retry_at_ms then
      table.insert(is_due and new.waiting or new[Counts.date_stands(eligible_at_ms)], id)
    end
    return true
  end

  -- Sets first, rows second, position last: if the function were ever cut short, applying the jobs again would find the rows missing.
  -- One call asks for all rows, and one writes them, whatever groups the jobs are of: each may have a queue of its own, and a call for each costs more
  -- than all the rest. Only jobs that were applied before have a row.
  local ids, met = {}, 0
  for _, group in ipairs(groups) do
    for place = group.first, group.first + (group.count - 1) * FIELDS, FIELDS do
      met = met + 1
      ids[met] = ARGV[place]
    end
  end
  local known = met > 0 and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  local rows, filled = {}, 0
  met = 0
  Heads.gather()
  for _, group in ipairs(groups) do
    local ready, later, new = {}, {}, {waiting = {}, scheduled = {}, blocked = {}}
    local is_plain = call.early == 0 and not has_notes and group.eligible_at_ms <= now_ms  -- as nearly all are
    if is_plain then
      new.waiting = ready
    end
    for position = 1, group.count do
      met = met + 1
      local id = ids[met]
      local is_new = not known[met] and not known_copies[id]
      if is_new and is_plain then
        ready[#ready + 1] = id
      elseif is_new then
        is_new = place(group, id, ready, later, new)
      end
      if is_new then
        rows[filled + 1], rows[filled + 2] = id, ARGV[group.first + (position - 1) * FIELDS + 1]
        filled = filled + 2
      end
    end
    if #later > 0 then
      redis.call('ZADD', K.later, unpack(later))
    end
    if #ready > 0 then
      Pages.add_waiting(group.jobtype, group.priority, ready)
    end
    group.new = new
  end
  Heads.write()
  if filled > 0 then
    redis.call('HSET', K.jobs, unpack(rows))
  end
  local added, came = filled / 2, {}  -- jobtype → how → ids: counted at once, of all its queues
  for _, group in ipairs(groups) do
    local jobtype = Queues.type_of(group.jobtype)
    local its_type = came[jobtype] or {}
    came[jobtype] = its_type
    for how, its in pairs(group.new) do
      if how == 'waiting' and group.eligible_at_ms > 0 then
        Move.note_since(its, group.eligible_at_ms)
      end
      Expire.note_expiry(its, group.expires_at_ms)
      local all = its_type[how]
      for _, id in ipairs(all and its or {}) do
        all[#all + 1] = id
      end
      its_type[how] = all or its  -- nobody else needs that list any more
    end
  end
  for jobtype, its_type in pairs(came) do
    for how, its in pairs(its_type) do
      if #its > 0 then
        Counts.moved(jobtype, nil, how, its)
      end
    end
  end
  if last_id ~= '' and last_id > (redis.call('HGET', K.applied, last_field) or '') then
    redis.call('HSET', K.applied, last_field, last_id)
  end
  About.write()
  Stands.count_watched()
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return added
end)
