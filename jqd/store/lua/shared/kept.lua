-- Since when journals keep jobs: nobody needs ends of jobs before all of these. Of many journals one that reported
-- nothing for SILENT_US may be forgotten; should it come back, it is applied from its beginning.
--
--     kept       hash  journal id → "fence fence": all jobs that it may have applied again were written after the
--                      first; it reported that at the second
Kept.SILENT_US = 30 * 86400 * 1000000

-- Returns both numbers of a journal; 0, 0: it has not reported.
function Kept.kept_since(journal)
  local since, at = (redis.call('HGET', K.kept, journal) or ''):match('^(%d+) (%d+)$')
  return tonumber(since) or 0, tonumber(at) or 0
end

-- Saves what a journal reports.
function Kept.save_kept(journal, since, now_us)
  redis.call('HSET', K.kept, journal, digits(since) .. ' ' .. digits(now_us))
end
