-- Applies changes of a journal and moves the position of their lane, in one step. Also runs on a full store, which
-- gives no new revisions: no daemon may claim while an acknowledged change is missing (docs/adr/0010), so no job would
-- end and make room.
-- ARGV     1    now_ms
--          2–4  position field, from, to
--          5    history_max
--          6    number of unique keys
--          then for each key as in apply_jobs
--          then groups of changes that share: 1 if they follow other contents, life of the store in which an edit was
--               made or nothing, jobtype, priority, eligible_at_ms, expires_at_ms. Each is these six, a count, and so
--               many times, ids ascending:
--               * revision, or "revision:generation" if these differ
--               * "first second" position of a copy, or nothing
--               * name, digest, id, row
-- Returns  number of jobs that were new; nil when these were applied before
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(changes · (members + log waiting)), and the bytes
register('apply_changes', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local history_max, key_count = tonumber(ARGV[5]), tonumber(ARGV[6])
  local FIRST, KEY, GROUP, FIELDS = 7, 3, 7, 6

  if not Position.at_position(field, from, to) then
    return false
  end
  local changes, queues, met, at = {}, {}, {}, FIRST + key_count * KEY
  while at <= #ARGV do
    local follows, life, jobtype, priority = ARGV[at] == '1', ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local eligible_at_ms, expires_at_ms = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
    local count = tonumber(ARGV[at + 6])
    if not met[jobtype] then
      met[jobtype], queues[#queues + 1] = true, jobtype
    end
    at = at + GROUP
    for place = at, at + count * FIELDS - 1, FIELDS do
      local revision, generation = ARGV[place], ARGV[place]
      if revision:find(':', 1, true) then
        revision, generation = revision:match('^(%d+):(%d+)$')
      end
      local copied = ARGV[place + 1]
      changes[#changes + 1] = {
        follows = follows, life = life, jobtype = jobtype, priority = priority, eligible_at_ms = eligible_at_ms,
        expires_at_ms = expires_at_ms,
        revision = tonumber(revision), revision_text = revision,
        generation = tonumber(generation),
        was_here = copied ~= '' and Gone.was_here(field, copied:match('^(%d+) (%d+)$')), name = ARGV[place + 2],
        digest = ARGV[place + 3],
        id = ARGV[place + 4], row = ARGV[place + 5],
      }
    end
    at = at + count * FIELDS
  end
  Queues.learn_paged(queues)
  local left, added = Fresh.apply_fresh(changes, now_ms)
  for _, change in ipairs(left) do
    added = added + Exchange.apply_change(change, now_ms, history_max)
  end
  Links.learn_keys(FIRST, key_count, now_ms)
  About.write()
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return added
end)
