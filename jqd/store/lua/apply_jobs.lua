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

  local has_notes = is_here('tomb')
  -- Whether something was told of a job before it came; whether it was here already, with a later content, and is deleted.
  local function is_met(id)
    if call.early > 0 and About.hold(id) then
      return true, false
    end
    local notes = has_notes and redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id, 'o' .. id) or {}
    return notes[1] or notes[2] or notes[3] or notes[4], notes[5]
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
  local rows, filled, told = {}, 0, {}
  met = 0
  Heads.gather()
  for _, group in ipairs(groups) do
    local fresh, dates, is_due = {}, {}, group.eligible_at_ms <= now_ms
    local is_plain = call.early == 0 and not has_notes  -- as nearly always
    group.fresh, group.how = fresh, is_due and 'waiting' or Counts.date_stands(group.eligible_at_ms)
    for position = 1, group.count do
      met = met + 1
      local id = ids[met]
      local is_new, was_told = not known[met] and not known_copies[id], false
      if is_new and not is_plain then
        local was_here
        was_told, was_here = is_met(id)
        is_new = not was_here
      end
      if is_new and was_told then
        told[#told + 1] = {id = id, jobtype = group.jobtype, priority = group.priority, eligible_at_ms = group.eligible_at_ms, generation = 0, revision = 0}
      elseif is_new then
        fresh[#fresh + 1] = id
      end
      if is_new then
        rows[filled + 1], rows[filled + 2] = id, ARGV[group.first + (position - 1) * FIELDS + 1]
        filled = filled + 2
      end
    end
    for at, id in ipairs(is_due and {} or fresh) do
      dates[2 * at - 1], dates[2 * at] = group.eligible_at_ms, id
      Counts.note_blocked(id, group.eligible_at_ms, now_ms)
    end
    if #dates > 0 then
      redis.call('ZADD', K.later, unpack(dates))
    elseif #fresh > 0 then
      Pages.add_waiting(group.jobtype, group.priority, fresh)
    end
  end
  Heads.write()
  for _, one in ipairs(told) do
    Stands.watch(one.id, true)  -- it has no row yet
    Exchange.place_unseen(one, now_ms, 0)
  end
  if filled > 0 then
    redis.call('HSET', K.jobs, unpack(rows))
  end
  for _, group in ipairs(groups) do
    if group.how == 'waiting' and group.eligible_at_ms > 0 then
      Move.note_since(group.fresh, group.eligible_at_ms)
    end
    Expire.note_expiry(group.fresh, group.expires_at_ms)
    Counts.moved(Queues.type_of(group.jobtype), nil, group.how, group.fresh)
  end
  if last_id ~= '' and last_id > (redis.call('HGET', K.applied, last_field) or '') then
    redis.call('HSET', K.applied, last_field, last_id)
  end
  About.write()
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return filled / 2
end)
