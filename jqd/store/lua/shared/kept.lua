-- Since when journals keep jobs.
--
--     kept       hash  journal id → "fence fence": all jobs that it may have applied again were written after the
--                      first; it told that at the second
--
-- A journal of which nothing was heard for SILENT_US may be forgotten, when there are many. Should it come back all the
-- same, it is told here again from its beginning.
Kept.SILENT_US = 30 * 86400 * 1000000

-- Both instants of a journal, 0 where nothing was told.
function Kept.kept_since(journal)
  local since, at = (redis.call('HGET', K.kept, journal) or ''):match('^(%d+) (%d+)$')
  return tonumber(since) or 0, tonumber(at) or 0
end

-- A journal tells its own.
function Kept.save_kept(journal, since, now_us)
  redis.call('HSET', K.kept, journal, digits(since) .. ' ' .. digits(now_us))
end
