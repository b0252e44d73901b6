-- Adds jobs from a journal and moves the position of their lane, in one step.
-- ARGV     1    now_ms
--          2–4  position field, from, to
--          5    last field
--          6    last id, or nothing: it stays
--          7    number of unique keys
--          8    number of copies
--          then for each key: key, id, how long its job has it
--          then for each copy: id, position where its job stood first, position from where it was copied
--          then groups of jobs that share: jobtype, priority, eligible_at_ms or 0, expires_at_ms or 0. Each is these
--               four, a count, and so many times id and row; ids ascending
-- Returns  number of jobs that were new; nil when these were applied before
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(jobs · log waiting), and the bytes
register('apply_jobs', {}, function()
  local now_ms = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local last_field, last_id = ARGV[5], ARGV[6]
  local COUNTS, FIRST, KEY, COPY, FIELDS = 7, 9, 3, 3, 2

  local key_count, copy_count = tonumber(ARGV[COUNTS]), tonumber(ARGV[COUNTS + 1])
  if not Position.at_position(field, from, to) then
    return false
  end
  local known_copies, left_out, at = {}, {}, FIRST + key_count * KEY
  for _ = 1, copy_count do
    known_copies[ARGV[at]] = Gone.was_here(field, ARGV[at + 1], ARGV[at + 2])
    at = at + COPY
  end
  local groups, ids = Arrive.read_groups(at, #ARGV + 1, FIELDS)
  for place, id in ipairs(copy_count > 0 and ids or {}) do
    left_out[place] = known_copies[id]
  end
  local added = Arrive.arrive(groups, ids, FIELDS, left_out, now_ms)
  Links.learn_keys(FIRST, key_count, now_ms)
  if last_id ~= '' and last_id > (redis.call('HGET', K.applied, last_field) or '') then
    redis.call('HSET', K.applied, last_field, last_id)
  end
  About.write()
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return added
end)
