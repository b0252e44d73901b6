-- Returns the jobs that a daemon holds, page by page.
-- ARGV     now_ms, sysid, epoch, how many to skip, limit
-- Returns  flat: id, fence; nothing after the last page
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE
-- Cost     O(limit + log held)
register('get_held', {'no-writes'}, function()
  local sysid, epoch = ARGV[2], tonumber(ARGV[3])
  local first, limit = tonumber(ARGV[4]), tonumber(ARGV[5])

  Members.own(sysid, epoch)
  return redis.call('ZRANGE', held_key(sysid), first, first + limit - 1, 'WITHSCORES')
end)
