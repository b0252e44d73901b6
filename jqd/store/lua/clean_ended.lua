-- Deletes jobs that ended before a date, the oldest first. Dead jobs stay, and jobs with a kept result.
-- ARGV     now_ms, identity of the store, before_ms, limit
-- Returns  number deleted, and looked at (0: none is left); the date for the next call: jobs that stay were put behind
--          it
-- Errors   JQD_UNSETTLED while the store is being restored; none after the first write
-- Cost     O(limit · log ended), and bytes of rows, some megabytes at most
register('clean_ended', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local before_ms, limit = tonumber(ARGV[3]), tonumber(ARGV[4])

  Settled.expect_told(ARGV[2], now_ms)
  before_ms = math.min(before_ms, now_ms + 1)
  local ids = redis.call('ZRANGE', K.ended, '-inf', '(' .. digits(before_ms), 'BYSCORE', 'LIMIT', 0, limit)
  local gone, looked = Delete.delete_free(ids, now_ms)
  return {#gone, looked, before_ms}
end)
