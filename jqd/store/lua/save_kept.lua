-- Saves since when a journal keeps the jobs that it may apply again, and up to which id it brings none any more.
-- Returns what all journals report; forgets journals that are long gone.
-- ARGV     now_ms, identity of the store, journal id, fence: all jobs it keeps were written after it; field and
--          position of its lane of jobs, last field, id: once the lane is there, no job of it up to that id is still to
--          come
-- Returns  a new fence, the fence at which this life began, then flat: journal id, the fence it reported last (it only
--          grows), the fence at which it did
-- Errors   JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(journals)
register('save_kept', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local journal, since = ARGV[3], tonumber(ARGV[4])
  local field, position, last_field, last_id = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
  -- journals up to which none is forgotten; above, so many may be in one call
  local KEPT, FORGOTTEN = 100, 10
  local NUMBER = 10  -- digits of a journal's id that are its number (jobid.py)

  Life.expect_life(ARGV[2])
  local present, known_since, reported_at = Members.next_fence(now_us), Kept.kept_since(journal)
  Kept.save_kept(journal, math.max(since, known_since), present)
  -- Jobs that ended and were deleted from the journal never come again, so after a loss the last id would never grow
  -- past theirs.
  if (tonumber(redis.call('HGET', K.applied, field) or '0') or -1) >= position
      and last_id > (redis.call('HGET', K.applied, last_field) or '') then
    redis.call('HSET', K.applied, last_field, last_id)
  end
  local answer, silent, rows = {digits(present), redis.call('HGET', K.life, 'high') or '0'}, {},
    redis.call('HGETALL', K.kept)
  for at = 1, #rows, 2 do
    local its_since, its_at = rows[at + 1]:match('^(%d+) (%d+)$')
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = rows[at], its_since or '0', its_at or '0'
    -- By the clock of the last call here: a journal that was away together with the store is waited for, and so are all
    -- if the clock is set forward.
    if tonumber(its_at or 0) < reported_at - Kept.SILENT_US then
      silent[#silent + 1] = {journal = rows[at], at = tonumber(its_at or 0)}
    end
  end
  table.sort(silent, function(one, other) return one.at < other.at end)
  for at = 1, math.min(#silent, #rows / 2 - KEPT, FORGOTTEN) do
    local id = silent[at].journal
    local fields = {'last:' .. digits(tonumber(id:sub(1, NUMBER), 16) or 0)}
    for _, name in ipairs({'jobs', 'outcomes', 'cancels', 'changes', 'rules', 'gone'}) do
      fields[#fields + 1] = id .. ':' .. name
    end
    redis.call('HDEL', K.applied, unpack(fields))
    redis.call('HDEL', K.kept, id)
  end
  return answer
end)
