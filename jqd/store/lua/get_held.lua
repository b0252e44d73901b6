-- Returns the jobs that a daemon holds, page by page.
-- ARGV     now_ms, sysid, epoch, how many to skip, limit
-- Returns  flat: id, fence; nothing after the last page
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(limit + log held)
register('get_held', {'no-writes'}, function()
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local first, limit = number(ARGV[4], 'first'), number(ARGV[5], 'limit')

  Members.own(sysid, epoch)
  return redis.call('ZRANGE', held_key(sysid), first, first + limit - 1, 'WITHSCORES')
end)
