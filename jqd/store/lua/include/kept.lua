-- Since when journals keep jobs. Needs keys, now. Field "<journal id>:kept" of `applied`: "fence fence", all jobs that it
-- may have applied again were written after the first; it told that at the second.
-- Gives kept_since(journal) → both, 0 where nothing was told; tell_kept(journal, since, now_us).
local function kept_since(journal)
  local since, at = (redis.call('HGET', K.applied, journal .. ':kept') or ''):match('^(%d+) (%d+)$')
  return tonumber(since) or 0, tonumber(at) or 0
end

local function tell_kept(journal, since, now_us)
  redis.call('HSET', K.applied, journal .. ':kept', digits(since) .. ' ' .. digits(now_us))
end
