-- Deletes jobs that ended before a date, the oldest first. Dead jobs stay, and jobs with a kept result.
-- ARGV     now_ms, identity of the store as the caller knows it, before_ms, limit
-- Returns  number deleted
-- Errors   JQD_UNSETTLED while the store is told again what it forgot, JQD_ARGUMENT; none after the first write
-- Cost     O(limit · log ended)
register('clean_ended', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local before_ms, limit = number(ARGV[3], 'before_ms'), number(ARGV[4], 'limit')

  Settled.expect_told(ARGV[2], now_ms)
  local ids = Delete.deletable(redis.call('ZRANGE', K.ended, '-inf', '(' .. string.format('%.0f', before_ms), 'BYSCORE', 'LIMIT', 0, limit), now_ms)
  Delete.delete_jobs(ids, now_ms)
  return #ids
end)
